"use strict";
// Hands each chart the rows of the run that is chosen. Charts and numbers come ready-made with the page.
(async () => {
  const started = performance.now();
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { switches, figures } = await new Response(unpacked).json();
  const chosen = Object.fromEntries(Object.entries(switches).map(([name, one]) => [name, one.now]));
  const most = 3000; // lines of a table that a browser shows at ease

  const viewOf = (figure) => figure.views.find(({ key }) => key.every((value, i) => value === chosen[figure.by[i]]));

  function rowsOf(columns) {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  }

  function sizeOf(figure) {
    const { pixels, share, least, most } = figure.height;
    const width = Math.max(220, figure.place.clientWidth);
    return [width, Math.round(Math.min(most, Math.max(least, pixels, share * width)))];
  }

  async function embed(figure, view) {
    const [width, height] = sizeOf(figure);
    // With its rows from the start: a chart that begins empty has no scales to lay itself out by.
    const data = figure.spec.data.map((one) => (one.name in view.data ? { ...one, values: rowsOf(view.data[one.name]) } : one));
    const { view: chart } = await vegaEmbed(figure.place.firstElementChild, { ...figure.spec, data, width, height }, {
      mode: "vega", actions: false, renderer: "svg", tooltip: { offsetX: 14, offsetY: 14 },
    });
    Object.assign(figure, { chart, width });
    new ResizeObserver(() => resize(figure)).observe(figure.place);
  }

  async function resize(figure) {
    const [width, height] = sizeOf(figure);
    if (width === figure.width || figure.place.hidden || matchMedia("print").matches) return;
    figure.width = width;
    await figure.chart.width(width).height(height).runAsync();
  }

  async function show(figure) {
    const view = viewOf(figure);
    figure.place.hidden = figure.behind.hidden = !view;
    figure.nothing.hidden = Boolean(view);
    if (!view) return;
    figure.place.setAttribute("aria-label", view.words);
    if (figure.chart) {
      for (const [name, columns] of Object.entries(view.data)) figure.chart.data(name, rowsOf(columns));
      await figure.chart.runAsync();
      await resize(figure);
    } else {
      await embed(figure, view);
    }
    if (figure.behind.open) tabulate(figure);
  }

  function cell(kind, value, { decimals = 0 } = {}) {
    const made = document.createElement(kind);
    const number = typeof value === "number";
    made.textContent = value === undefined ? "" : number && !Number.isInteger(value) ? value.toFixed(decimals) : number && decimals ? value.toFixed(decimals) : value;
    if (!number && value !== undefined) made.className = "text";
    if (kind === "th") made.scope = "row";
    return made;
  }

  function pivoted(rows, { line, column, value, heading }) {
    const names = [...new Set(rows.map((row) => row[column]))];
    const lines = new Map();
    for (const row of rows) {
      if (!lines.has(row[line])) lines.set(row[line], {});
      lines.get(row[line])[names.indexOf(row[column])] = row[value.field];
    }
    return {
      headings: [heading, ...names],
      lines: [...lines].map(([name, found]) => [cell("th", name), ...names.map((_, i) => cell("td", found[i], value))]),
    };
  }

  function plain(rows, columns) {
    return {
      headings: columns.map(({ heading }) => heading),
      lines: rows.slice(0, most).map((row) => columns.map((column, i) => cell(i ? "td" : "th", row[column.field], column))),
    };
  }

  function tabulate(figure) {
    const rows = rowsOf(viewOf(figure).data.rows);
    const { headings, lines } = figure.table.pivot ? pivoted(rows, figure.table) : plain(rows, figure.table);
    const table = document.createElement("table");
    table.append(document.createElement("caption"), document.createElement("thead"), document.createElement("tbody"));
    table.caption.className = "hidden";
    table.caption.textContent = viewOf(figure).words;
    const head = table.tHead.insertRow();
    for (const heading of headings) {
      const made = document.createElement("th");
      made.scope = "col";
      made.textContent = heading;
      head.append(made);
    }
    for (const line of lines) table.tBodies[0].insertRow().append(...line);
    const left = figure.table.pivot ? 0 : rows.length - lines.length;
    figure.behind.querySelector(".scroll").replaceChildren(table, left ? `… and ${left} lines more` : "");
  }

  async function choose(name, value) {
    chosen[name] = value;
    for (const figure of figures) if (figure.by.includes(name)) await show(figure);
    const said = document.getElementById("said");
    if (said) said.textContent = `Now shown: ${Object.values(chosen).join(", ")}`;
  }

  for (const input of document.querySelectorAll("[data-switch]")) {
    input.addEventListener("change", () => {
      const name = input.dataset.switch;
      choose(name, switches[name].options[input.value][0]);
    });
  }
  for (const figure of figures) {
    const element = document.getElementById(figure.name);
    figure.place = element.querySelector(".chart");
    figure.behind = element.querySelector("details");
    figure.nothing = element.querySelector(".none");
    figure.nothing.textContent = figure.absent;
    figure.behind.addEventListener("toggle", () => figure.behind.open && tabulate(figure));
    await show(figure);
  }
  document.documentElement.dataset.drawn = Math.round(performance.now() - started);
})();
