// Live values: the server sends the texts of elements by their ids. Texts only, so nothing from a
// message can become markup.
"use strict";

(function () {
  const main = document.querySelector("[data-live]");
  if (!main || !window.EventSource) {
    return;
  }
  const freshness = document.getElementById("freshness");
  const say = function (text) {
    if (freshness) {
      freshness.textContent = text;
      freshness.hidden = text === "";
    }
  };
  const source = new EventSource(main.dataset.live);
  source.onmessage = function (event) {
    const texts = JSON.parse(event.data);
    for (const id of Object.keys(texts)) {
      const element = document.getElementById(id);
      if (element && element.textContent !== texts[id]) {
        element.textContent = texts[id];
      }
    }
    say("");
  };
  source.addEventListener("away", function () {
    say("The broker cannot be reached. These are the last values.");
  });
  // Something happened that changes more than texts.
  source.addEventListener("reload", function () {
    source.close();
    window.location.reload();
  });
  source.onerror = function () {
    if (source.readyState === EventSource.CLOSED) {
      say("This page is no longer updated. Reload it, or start rehop ui again.");
    }
  };
})();
