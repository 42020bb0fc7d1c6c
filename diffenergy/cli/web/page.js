"use strict";
// The form: its state is the address, its answer comes as lines of JSON.
(() => {
  const { command, answers_at_once: atOnce } = JSON.parse(document.getElementById("request").textContent);
  const form = document.getElementById("form");
  const [status, refused] = ["status", "refused"].map((x) => document.getElementById(x));
  const cancel = document.getElementById("cancel");
  const charts = document.getElementById("charts");
  const inputs = [...form.querySelectorAll("[name]")];
  const PAUSE = 250; // ms without a change until the answer is renewed
  const GONE = "The server does not answer; it may have ended.";
  let posted = Promise.resolve({});
  let running = null;
  let answered = null;
  let timer = 0;

  function state() {
    const query = new URLSearchParams();
    for (const input of inputs) {
      const value = input.type === "checkbox" ? (input.checked ? "yes" : "") : input.value.trim();
      if (value) query.append(input.name, value);
    }
    if (charts?.checked) query.append("charts", "yes");
    return query;
  }

  function fields(query) {
    const result = {};
    for (const input of inputs) {
      const value = query.get(input.name);
      if (!value) continue;
      if (input.type === "checkbox") result[input.name] = true;
      else if ("many" in input.dataset) result[input.name] = value.split(";").map((x) => x.trim()).filter(Boolean);
      else result[input.name] = value;
    }
    return result;
  }

  function fill(query) {
    for (const input of inputs) {
      const value = query.get(input.name) ?? "";
      if (input.type === "checkbox") input.checked = value !== "";
      else input.value = value;
      if (value) input.closest("details")?.setAttribute("open", "");
    }
    if (charts) charts.checked = query.has("charts");
  }

  const pins = () => new URLSearchParams(location.search).getAll("pin");

  function address(query, pinned) {
    const all = new URLSearchParams(query);
    for (const pin of pinned) all.append("pin", pin);
    return `/${command}${all.size ? `?${all}` : ""}`;
  }

  async function ask(name, query, prefix, signal, tell) {
    const body = { ...fields(query), prefix, charts: !charts || query.has("charts") };
    body.posted = await posted;
    const response = await fetch(`/answer/${name}`, {
      method: "POST", signal, body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let last = null;
    for (;;) {
      const { done, value } = await reader.read();
      rest += value ?? "";
      const lines = rest.split("\n");
      rest = done ? "" : lines.pop();
      for (const line of lines.filter(Boolean)) {
        last = JSON.parse(line);
        if (last.progress) tell(last.progress);
      }
      if (done) return last;
    }
  }

  function button(text, act) {
    const element = document.createElement("button");
    element.type = "button";
    element.textContent = text;
    element.addEventListener("click", act);
    return element;
  }

  function show(place, reply, ...buttons) {
    place.innerHTML = reply.html;
    place.hidden = false;
    place.classList.remove("stale");
    const bar = document.createElement("p");
    bar.className = "bar";
    const line = document.createElement("pre");
    line.tabIndex = 0;
    line.textContent = reply.line;
    const save = document.createElement("a");
    save.href = URL.createObjectURL(new Blob([reply.json], { type: "application/json" }));
    save.download = `${command}.json`;
    save.textContent = "Download JSON";
    const copy = button("Copy command", async () => {
      await navigator.clipboard.writeText(reply.line);
      status.textContent = "The command line is copied.";
    });
    bar.append(...buttons, copy, save);
    place.prepend(line, bar);
    window.diffenergy.enliven(place);
  }

  function refuse(error) {
    refused.textContent = "";
    const input = inputs.find((x) => error.field && [x.dataset.flag, x.name, x.name.toUpperCase()].includes(error.field));
    if (!input) {
      refused.textContent = error.message;
      return;
    }
    input.closest("details")?.setAttribute("open", "");
    input.setAttribute("aria-invalid", "true");
    document.getElementById(`${input.id}-error`).textContent = error.message;
  }

  function clear() {
    refused.textContent = "";
    for (const input of inputs) {
      input.removeAttribute("aria-invalid");
      document.getElementById(`${input.id}-error`).textContent = "";
    }
  }

  async function answer() {
    clearTimeout(timer);
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const query = state();
    const now = document.getElementById("now");
    clear();
    now.classList.add("stale");
    cancel.disabled = false;
    const begin = performance.now();
    status.textContent = "Working ...";
    try {
      const reply = await ask(command, query, "a", mine.signal, (line) => { status.textContent = line; });
      if (running !== mine) return;
      status.textContent = "";
      if (reply.error) {
        refuse(reply.error);
        return;
      }
      answered = query;
      show(now, reply, button("Pin", pin));
      status.textContent = `Answered in ${Math.round(performance.now() - begin)} ms.`;
      history.replaceState(null, "", address(query, pins()));
    } catch (error) {
      if (running !== mine) return;
      status.textContent = error.name === "AbortError" ? "Cancelled." : "";
      if (error.name !== "AbortError") refused.textContent = GONE;
    } finally {
      if (running === mine) cancel.disabled = true;
    }
  }

  function pin() {
    history.replaceState(null, "", address(answered, [...pins(), answered.toString()].slice(-2)));
    showPins();
  }

  function showPins() {
    for (const [at, letter] of ["b", "c"].entries()) showPin(at, letter);
  }

  async function showPin(at, letter) {
    const query = pins()[at] ?? "";
    const place = document.getElementById(`pin-${letter}`);
    place.hidden = !query;
    if (place.dataset.query === query) return;
    place.dataset.query = query;
    place.innerHTML = "";
    if (place.hidden) return;
    const reply = await ask(command, new URLSearchParams(query), letter, undefined, () => {})
      .catch(() => ({ error: { message: GONE } }));
    if (place.dataset.query !== query) return;
    const unpin = button("Unpin", () => {
      history.replaceState(null, "", address(state(), pins().filter((_, i) => i !== at)));
      showPins();
    });
    if (reply.error) place.textContent = reply.error.message;
    else show(place, reply, unpin);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer();
  });
  cancel.addEventListener("click", () => running?.abort());
  form.addEventListener("input", (event) => {
    if (event.target.id === "posted") return;
    const wrong = event.target.validationMessage;
    const place = document.getElementById(`${event.target.id}-error`);
    if (place) place.textContent = event.target.required && !event.target.value ? "" : wrong ?? "";
    event.target.toggleAttribute("aria-invalid", false);
    if (wrong) event.target.setAttribute("aria-invalid", "true");
    clearTimeout(timer);
    if ((atOnce || answered) && form.checkValidity()) timer = setTimeout(answer, PAUSE);
  });
  document.getElementById("posted").addEventListener("change", (event) => {
    const files = [...event.target.files].map(async (x) => [x.name, await x.text()]);
    posted = Promise.all(files).then(Object.fromEntries);
  });

  // not scrollIntoView: browsers would begin the keyboard's way there, past the skip link
  const link = document.querySelector("nav [aria-current]");
  for (let box = link.parentElement; box; box = box.parentElement) {
    if (box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible") {
      box.scrollLeft += link.getBoundingClientRect().left - box.getBoundingClientRect().left
        - (box.clientWidth - link.offsetWidth) / 2;
      break;
    }
  }
  const begin = new URLSearchParams(location.search);
  fill(begin);
  if (form.checkValidity() && (begin.size || atOnce)) answer();
  showPins();
})();
