// A stub of Shopify's App Bridge for the simulated admin: what the app uses of it, as it is documented.
// It asks the page that frames the app, by postMessage, for ID tokens; adds them to every fetch of the
// app's own origin; and repeats a fetch once when the app answers 401 with
// X-Shopify-Retry-Invalid-Session-Request.
(() => {
  const admin = new URL(document.currentScript.src).origin;
  const framed = window.parent !== window;
  const waiting = new Map();
  let next = 0;

  const tell = (kind, value, id) => framed && window.parent.postMessage({ bridge: 'app', kind, value, id }, admin);

  addEventListener('message', (event) => {
    if (event.source !== window.parent || event.origin !== admin || event.data?.bridge !== 'admin') return;
    const { id, kind, value, error } = event.data;
    if (kind === 'navigate') {
      const link = [...document.querySelectorAll('s-app-nav a, ui-nav-menu a')].find((a) => a.getAttribute('href') === value);
      (link ?? document).dispatchEvent(new Event('shopify:navigate', { bubbles: true }));
      return;
    }
    const asked = waiting.get(id);
    if (!asked) return;
    waiting.delete(id);
    if (error) asked.reject(new Error(error));
    else asked.resolve(value);
  });

  const idToken = () => new Promise((resolve, reject) => {
    if (!framed) {
      reject(new Error('App Bridge works inside the Shopify admin alone'));
      return;
    }
    const id = ++next;
    waiting.set(id, { resolve, reject });
    tell('idToken', null, id);
  });

  const plainFetch = window.fetch.bind(window);
  window.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (new URL(request.url, location.href).origin !== location.origin || request.headers.has('Authorization')) return plainFetch(request);
    const again = request.clone();
    const send = async (r) => {
      r.headers.set('Authorization', `Bearer ${await idToken()}`);
      return plainFetch(r);
    };
    const response = await send(request);
    const retry = response.status === 401 && response.headers.get('X-Shopify-Retry-Invalid-Session-Request');
    return retry ? send(again) : response;
  };

  const navigation = () => tell('nav', [...document.querySelectorAll('s-app-nav a, ui-nav-menu a')]
    .filter((a) => a.getAttribute('rel') !== 'home')
    .map((a) => ({ href: a.getAttribute('href'), text: a.textContent.trim() })));
  addEventListener('DOMContentLoaded', () => {
    navigation();
    document.addEventListener('turbo:load', navigation);
  });

  window.shopify = {
    config: { apiKey: document.querySelector('meta[name="shopify-api-key"]')?.content, shop: new URLSearchParams(location.search).get('shop') },
    environment: { embedded: framed, mobile: false, pos: false },
    idToken,
    loading: (on) => tell('loading', Boolean(on)),
    toast: { show: (text) => tell('toast', String(text)), hide: () => tell('toast', '') },
    app: {
      // Which of the app's extensions the merchant's theme uses: here the storefront always has the block.
      extensions: async () => [{ handle: 'notify-me', type: 'theme_app_extension', activations: [{ handle: 'notify-me', target: 'section', status: 'active' }] }],
    },
  };
})();
