// Replaces the live part of the page by what the server sends. If the stream fails, the page is
// fetched again every few seconds.
(() => {
  'use strict';
  const live = document.getElementById('live');
  const button = document.getElementById('pause');
  let stream = null, timer = 0, paused = false;
  const show = (html) => {
    const focused = document.activeElement && live.contains(document.activeElement)
      ? document.activeElement.getAttribute('href') : null;
    live.innerHTML = html;
    if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  const poll = async () => {
    try {
      const reply = await fetch(location.href, { headers: { Accept: 'text/html' } });
      const page = new DOMParser().parseFromString(await reply.text(), 'text/html');
      const part = page.getElementById('live');
      if (part && !paused) show(part.innerHTML);
    } catch { /* the next one may succeed */ }
    if (!paused) timer = setTimeout(poll, 5000);
  };
  const start = () => {
    stream = new EventSource(live.dataset.events);
    stream.onmessage = (event) => show(event.data);
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) { stop(); poll(); }
    };
  };
  const stop = () => { stream?.close(); stream = null; clearTimeout(timer); };
  button.hidden = false;
  button.addEventListener('click', () => {
    paused = !paused;
    button.setAttribute('aria-pressed', paused);
    button.textContent = paused ? 'Resume' : 'Pause';
    if (paused) stop(); else start();
  });
  start();
})();
