// What the shopper's pages do when scripts run: times in the reader's own zone, a live countdown by the
// server's clock, and a look whether the state has changed. It only ever reads: no form is submitted
// here, because programs that scan mail run scripts, too.
(() => {
  const time = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });
  const dayAndTime = new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: 'numeric', minute: '2-digit' });
  for (const el of document.querySelectorAll('time[data-when]')) {
    const at = new Date(el.dateTime);
    const today = at.toDateString() === new Date().toDateString();
    el.textContent = (today ? time : dayAndTime).format(at);
  }

  const { state, status, self, retry } = document.body.dataset;
  const again = () => location.replace(self || location.pathname);

  for (const el of document.querySelectorAll('[data-countdown]')) {
    // Only the difference of two server times counts: the phone's clock may be wrong. It is Date.now()
    // that runs on while a phone sleeps; performance.now() may stand still.
    const end = Date.parse(el.dataset.countdown) - Date.parse(el.dataset.now) + Date.now();
    const over = end <= Date.now(); // loaded in the moment of its end: look again, but not at once
    const tick = () => {
      const s = Math.max(0, Math.round((end - Date.now()) / 1000));
      const two = (n) => String(n).padStart(2, '0');
      const m = Math.floor(s / 60);
      el.textContent = m >= 60 ? `${Math.floor(m / 60)}:${two(m % 60)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
      if (s === 0) setTimeout(again, over ? 5000 : 1500);
      else setTimeout(tick, 1000);
    };
    tick();
  }

  let timer;
  const look = async () => {
    clearTimeout(timer);
    let wait = Number(retry) || 0;
    try {
      const answer = await (await fetch(status, { cache: 'no-store', headers: { Accept: 'application/json' } })).json();
      if (answer.state && answer.state !== state) return again();
      wait = answer.retry_ms;
    } catch {
      wait = 5000; // offline, or we are: the page stays as it is
    }
    if (wait > 0) timer = setTimeout(look, wait);
  };
  if (status) {
    if (Number(retry) > 0) timer = setTimeout(look, Number(retry));
    document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
  }
  // A page from the back/forward cache is as old as it looks.
  addEventListener('pageshow', (event) => { if (event.persisted) again(); });
  addEventListener('submit', (event) => event.submitter?.setAttribute('aria-busy', 'true'));
})();
