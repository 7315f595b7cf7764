// What the merchant's pages need of a script of ours. Turbo Drive turns links and forms into fetches, so
// that App Bridge adds the ID token to them; this file does the rest.
(() => {
  // Shopify adds one-time values to the first address it opens. They must not be shared, reloaded or kept.
  const clean = () => {
    const url = new URL(location.href);
    let changed = false;
    for (const name of ['id_token', 'hmac', 'session', 'timestamp']) {
      if (url.searchParams.has(name)) {
        url.searchParams.delete(name);
        changed = true;
      }
    }
    if (changed) history.replaceState(history.state, '', url);
  };

  const day = { day: 'numeric', month: 'short', hour: 'numeric', minute: '2-digit' };
  const thisYear = new Intl.DateTimeFormat(undefined, day);
  const anyYear = new Intl.DateTimeFormat(undefined, { ...day, year: 'numeric' });
  const localise = () => {
    for (const el of document.querySelectorAll('time[data-when]')) {
      const at = new Date(el.dateTime);
      el.textContent = (at.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(at);
    }
  };

  // One interval for all countdowns; the difference of two server times counts, not the reader's clock.
  let ticking;
  const count = () => {
    clearInterval(ticking);
    const all = [...document.querySelectorAll('[data-countdown]')].map((el) => ({
      el, end: Date.parse(el.dataset.countdown) - Date.parse(el.dataset.now) + Date.now(),
    }));
    if (all.length === 0) return;
    const tick = () => {
      for (const { el, end } of all) {
        const s = Math.max(0, Math.round((end - Date.now()) / 1000));
        const two = (n) => String(n).padStart(2, '0');
        el.textContent = s >= 3600
          ? `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`
          : `${Math.floor(s / 60)}:${two(s % 60)}`;
      }
    };
    tick();
    ticking = setInterval(tick, 1000);
  };

  const start = () => {
    clean();
    localise();
    count();
    // The shell holds nothing: ask for the same address again, this time with a token.
    if (document.body.hasAttribute('data-shell')) Turbo.visit(location.href, { action: 'replace' });
  };
  // turbo:load comes after the first load and after every visit; turbo:render also after a form that
  // was answered with its faults.
  document.addEventListener('turbo:load', start);
  document.addEventListener('turbo:render', () => { localise(); count(); });

  // A press in Shopify's own navigation.
  document.addEventListener('shopify:navigate', (event) => {
    const to = event.target?.getAttribute?.('href');
    if (to) Turbo.visit(to);
  });
})();
