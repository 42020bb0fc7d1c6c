"use strict";
// Charts: one point at a time, by pointer or arrow keys. Tables: sorting and filters.
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function chart(stage) {
    const data = JSON.parse(document.getElementById(stage.dataset.points).textContent);
    const readout = stage.parentElement.querySelector(".readout");
    const count = data.wide.length / 2;
    let current = 0;

    const svg = () => [...stage.querySelectorAll("svg")].find((x) => x.clientWidth > 0);
    const places = (drawn) => (drawn.classList.contains("wide") ? data.wide : data.narrow);

    function show(index) {
      const drawn = svg();
      if (!drawn || !count) return;
      current = Math.min(Math.max(index, 0), count - 1);
      for (const old of stage.querySelectorAll(".cursor")) old.remove();
      const at = places(drawn);
      const ring = document.createElementNS(SVG, "circle");
      ring.setAttribute("class", "cursor");
      ring.setAttribute("cx", at[2 * current]);
      ring.setAttribute("cy", at[2 * current + 1]);
      ring.setAttribute("r", 7);
      drawn.append(ring);
      const text = data.texts[data.which ? data.which[current] : current];
      readout.textContent = text;
      readout.classList.add("live");
      stage.setAttribute("aria-valuenow", current + 1);
      stage.setAttribute("aria-valuetext", text);
    }

    function nearest(event) {
      const drawn = svg();
      if (!drawn) return 0;
      const box = drawn.getBoundingClientRect();
      const scale = drawn.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale;
      const y = (event.clientY - box.top) * scale;
      const at = places(drawn);
      let best = 0;
      let least = Infinity;
      for (let i = 0; i < count; i += 1) {
        const dx = x - at[2 * i];
        const dy = y - at[2 * i + 1];
        const away = data.read === "span" ? (dx < 0 ? Infinity : dx) : dx * dx + dy * dy;
        if (away <= least) {
          least = away;
          best = i;
        }
      }
      return best;
    }

    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    stage.addEventListener("keydown", (event) => {
      let next = null;
      if (event.key in steps) next = current + steps[event.key];
      if (event.key === "Home") next = 0;
      if (event.key === "End") next = count - 1;
      if (next === null) return;
      event.preventDefault();
      show(next);
    });
    stage.addEventListener("focus", () => show(current));
    stage.addEventListener("pointermove", (event) => show(nearest(event)));
    stage.addEventListener("pointerdown", (event) => show(nearest(event)));
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        const falls = head.getAttribute("aria-sort") === "descending";
        const sign = falls ? 1 : -1;
        const rows = [...table.tBodies[0].rows];
        const key = (row) => row.cells[column].dataset.value;
        rows.sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x !== undefined && y !== undefined) return sign * (x - y);
          if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
          const [s, t] = [a, b].map((row) => row.cells[column].textContent);
          return -sign * s.localeCompare(t, "en", { numeric: true });
        });
        table.tBodies[0].append(...rows);
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", falls ? "ascending" : "descending");
      });
    });
  }

  function filtered(details) {
    const field = details.querySelector("input[type=search]");
    const rows = [...details.querySelectorAll("tbody tr")];
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  function enliven(root) {
    root.querySelectorAll(".stage").forEach(chart);
    root.querySelectorAll("table.sortable").forEach(sortable);
    root.querySelectorAll("details:has(input[type=search])").forEach(filtered);
  }

  enliven(document);
  window.diffenergy = { enliven };
})();
