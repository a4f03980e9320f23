// Replaces the live part of the page by what the server sends. If there is no stream, the page is
// fetched again every few seconds. A page that nobody sees does not listen.
(() => {
  'use strict';
  const live = document.getElementById('live');
  const news = document.getElementById('news');
  const button = document.getElementById('pause');
  const folded = new Set();
  let stream = null, timer = 0, paused = false, pressed = 0, shown = Date.now();

  // Screen readers read the text of news when it changes, and only then.
  const tell = (text) => {
    if (news.textContent !== text) news.textContent = text;
    live.classList.toggle('stale', text !== '');
  };
  const selecting = () => {
    const s = getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  };
  // A click counts only if the same element is there at its begin and at its end. The end may be
  // missed, for example outside of the window, so it is not waited for longer than five seconds.
  const pressing = () => pressed && performance.now() - pressed < 5000;
  const show = (html) => {
    if (selecting() || pressing()) return; // somebody is about to copy an ID, or to click
    const { id, attributes: { href } } = document.activeElement;
    const focused = !live.contains(document.activeElement) ? '' : href ? `a[href="${CSS.escape(href.value)}"]` : id && `#${id}`;
    for (const part of live.querySelectorAll('details')) folded[part.open ? 'delete' : 'add'](part.id);
    live.innerHTML = html;
    shown = Date.now();
    for (const part of live.querySelectorAll('details')) part.open = !folded.has(part.id);
    if (focused) live.querySelector(focused)?.focus({ preventScroll: true });
    tell(live.querySelector('[data-news]')?.dataset.news ?? '');
  };
  // The age of the list counts on without news from the server.
  const span = (s) => s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  setInterval(() => {
    for (const age of live.querySelectorAll('[data-age]')) age.textContent = span(Math.floor((+age.dataset.age + Date.now() - shown) / 1000));
  }, 1000);
  const lost = () => tell('No connection to the inspector: what you see is old.');
  const poll = async () => {
    try {
      const reply = await fetch(location.href, { headers: { Accept: 'text/html' } });
      const page = new DOMParser().parseFromString(await reply.text(), 'text/html');
      const part = page.getElementById('live');
      if (!part) lost();
      else if (timer) show(part.innerHTML);
    } catch { lost(); }
    if (timer) timer = setTimeout(poll, 5000);
  };
  const start = () => {
    if (stream || timer || paused || document.hidden) return;
    stream = new EventSource(live.dataset.events);
    stream.onmessage = (event) => show(event.data);
    stream.onerror = () => {
      lost();
      if (stream?.readyState === EventSource.CLOSED) { stop(); timer = setTimeout(poll, 1000); }
    };
  };
  const stop = () => { stream?.close(); stream = null; clearTimeout(timer); timer = 0; };

  button.hidden = false;
  button.addEventListener('click', () => {
    paused = !paused;
    button.setAttribute('aria-pressed', paused);
    button.textContent = paused ? 'Resume' : 'Pause';
    live.classList.toggle('paused', paused);
    if (paused) stop(); else start();
  });
  document.addEventListener('pointerdown', () => { pressed = performance.now(); });
  for (const end of ['pointerup', 'pointercancel']) document.addEventListener(end, () => { pressed = 0; });
  document.addEventListener('visibilitychange', () => { if (document.hidden) stop(); else start(); });
  document.addEventListener('keydown', (event) => {
    const search = document.getElementById('q');
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || !search || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    search.select();
  });
  // The address has only what the user has filled in.
  document.querySelector('.search')?.addEventListener('formdata', ({ formData }) => {
    if (formData.get('sort') === 'name') formData.delete('sort');
    for (const field of ['q', 'contains']) if (!formData.get(field)) formData.delete(field);
  });
  start();
})();
