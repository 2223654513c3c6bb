// Plays recordings of terminals (asciicast v2) that hooks.py has put into a page: text with times, without cursor
// movements, which recordings of the walk through a page do not have.
"use strict";

// events are the texts of a recording with the second at which each appears, waits cut to the header's limit.
function events(source) {
  const [header, ...lines] = source.trim().split("\n").map(line => JSON.parse(line));
  let last = 0, at = 0;
  return lines.filter(e => e[1] === "o").map(([time, , text]) => {
    at += Math.min(time - last, header.idle_time_limit || Infinity);
    last = time;
    return { at, text: text.replace(/\r/g, "").replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "") };
  });
}

function clock(seconds) {
  return Math.floor(seconds / 60) + ":" + String(Math.floor(seconds % 60)).padStart(2, "0");
}

function player(box) {
  const all = events(box.querySelector("script").textContent);
  const end = all.length ? all[all.length - 1].at : 0;
  const screen = document.createElement("pre");
  const button = document.createElement("button");
  const slider = document.createElement("input");
  const label = document.createElement("span");
  const bar = document.createElement("div");
  Object.assign(slider, { type: "range", min: 0, max: end, step: 0.1, value: 0 });
  slider.setAttribute("aria-label", "Position in the recording");
  screen.tabIndex = 0;
  bar.className = "cast-bar";
  bar.append(button, slider, label);
  box.append(screen, bar);

  let at = 0, shown = -1, timer = null;
  function draw() {
    const count = all.filter(e => e.at <= at).length;
    if (count !== shown) {
      screen.textContent = all.slice(0, count).map(e => e.text).join("");
      screen.scrollTop = screen.scrollHeight;
      shown = count;
    }
    slider.value = at;
    label.textContent = clock(at) + " / " + clock(end);
    button.textContent = timer ? "Pause" : "Play";
  }
  function stop() {
    clearInterval(timer);
    timer = null;
  }
  function play() {
    if (at >= end) at = 0;
    let before = performance.now();
    timer = setInterval(() => {
      const now = performance.now();
      at = Math.min(end, at + (now - before) / 1000);
      before = now;
      if (at >= end) stop();
      draw();
    }, 100);
  }
  button.addEventListener("click", () => {
    if (timer) stop(); else play();
    draw();
  });
  slider.addEventListener("input", () => {
    at = Number(slider.value);
    draw();
  });
  draw();
}

document.querySelectorAll(".cast").forEach(player);
