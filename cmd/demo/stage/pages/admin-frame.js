// The admin's side of the simulated App Bridge: it gives the framed app ID tokens and shows its navigation
// and toasts. It speaks to the app's own frame and origin alone.
(() => {
  const frame = document.getElementById('app');
  const { origin, shop } = frame.dataset;
  const nav = document.querySelector('nav');
  const toast = document.getElementById('toast');

  const answer = (id, result) => frame.contentWindow.postMessage({ bridge: 'admin', id, ...result }, origin);

  addEventListener('message', async (event) => {
    if (event.source !== frame.contentWindow || event.origin !== origin || event.data?.bridge !== 'app') return;
    const { kind, id, value } = event.data;
    switch (kind) {
      case 'idToken':
        try {
          const response = await fetch(`/admin/${shop}/id-token`, { cache: 'no-store' });
          if (!response.ok) throw new Error(`no ID token: ${response.status}`);
          answer(id, { value: (await response.json()).id_token });
        } catch (error) {
          answer(id, { error: error.message });
        }
        break;
      case 'nav':
        nav.replaceChildren(...value.map(({ href, text }) => {
          const link = document.createElement('a');
          link.href = href;
          link.textContent = text;
          link.addEventListener('click', (press) => {
            press.preventDefault();
            frame.contentWindow.postMessage({ bridge: 'admin', kind: 'navigate', value: href }, origin);
          });
          return link;
        }));
        break;
      case 'toast':
        toast.textContent = value;
        setTimeout(() => { if (toast.textContent === value) toast.textContent = ''; }, 5000);
        break;
      case 'loading':
        document.body.toggleAttribute('data-loading', value);
        break;
    }
  });
})();
