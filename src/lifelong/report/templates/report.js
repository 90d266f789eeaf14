"use strict";
// Hands each chart the rows of the run that is chosen. Charts and numbers come ready-made with the page.
(async () => {
  const started = performance.now();
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { switches, figures, source } = await new Response(unpacked).json();
  const chosen = Object.fromEntries(Object.entries(switches).map(([name, one]) => [name, one.now]));
  const most = 3000; // lines of a table that a browser shows at ease
  const onPaper = 330; // most pixels of height in print, so that little of a page stays empty
  const least = 200; // pixels of height for the marks of a chart

  const viewOf = (figure) => figure.views.find(({ key }) => key.every((value, i) => value === chosen[figure.by[i]]));

  function rowsOf(columns) {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  }

  function sizeOf(figure, room = figure.place.clientWidth) {
    const { pixels, share, least, most } = figure.height;
    const width = Math.max(220, room);
    return [width, Math.round(Math.min(most, Math.max(least, pixels, share * width)))];
  }

  const narrow = (width) => width < 480;

  function configOf(figure, width) {
    const { legend, ...rest } = figure.spec.config;
    // Vega-Lite has no name for this: legends one under the other, so that they fit any width.
    const layout = { top: { direction: "vertical", anchor: "start" } };
    return { ...rest, legend: { ...legend, layout, columns: narrow(width) ? 2 : legend.columns * (figure.wide ? 2 : 1) } };
  }

  async function embed(figure, view) {
    const [width, height] = sizeOf(figure);
    figure.finalize?.();
    // With its rows from the start: a chart that begins empty has no scales to lay itself out by.
    const data = figure.spec.data.map((one) => (one.name in view.data ? { ...one, values: rowsOf(view.data[one.name]) } : one));
    const spec = { ...figure.spec, config: configOf(figure, width), data, width, height };
    const { view: chart, finalize } = await vegaEmbed(figure.place.firstElementChild, spec, {
      mode: "vega", actions: false, renderer: "svg", tooltip: { offsetX: 14, offsetY: 14 },
    });
    Object.assign(figure, { chart, finalize, width });
    figure.place.style.minHeight = "";
    await heighten(figure, height)?.runAsync();
  }

  // Laid out once with the wanted height, and higher if axes and legends left too little of it.
  function heighten(figure, height) {
    const missing = least - figure.chart.signal("height"); // of the marks alone
    return missing > 1 ? figure.chart.height(height + Math.ceil(missing)) : null;
  }

  // The room that a chart will take, so that nothing moves under the reader when it is drawn.
  function reserve(figure) {
    if (!figure.chart) figure.place.style.minHeight = `${sizeOf(figure)[1]}px`;
  }

  async function resize(figure) {
    const [width, height] = sizeOf(figure);
    reserve(figure);
    if (!figure.chart || width === figure.width || figure.place.hidden || matchMedia("print").matches) return;
    if (narrow(width) !== narrow(figure.width)) return embed(figure, viewOf(figure));
    figure.width = width;
    await figure.chart.width(width).height(height).runAsync();
    await heighten(figure, height)?.runAsync();
  }

  // What is chosen in words and in the table; the chart itself may be far from the screen.
  function describe(figure) {
    const view = viewOf(figure);
    figure.place.hidden = figure.foot.hidden = !view;
    figure.nothing.hidden = Boolean(view);
    if (!view) return;
    figure.place.setAttribute("aria-label", view.words);
    reserve(figure);
    if (figure.behind.open) tabulate(figure);
  }

  async function draw(figure) {
    const view = viewOf(figure);
    figure.wanted = true;
    if (!view) return;
    if (figure.chart) {
      for (const [name, columns] of Object.entries(view.data)) figure.chart.data(name, rowsOf(columns));
      await figure.chart.runAsync();
      await resize(figure);
    } else {
      await embed(figure, view);
    }
  }

  // One after another: a choice that is made while charts are drawn waits for them.
  let work = Promise.resolve();
  const later = (job) => (work = work.then(job));

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

  // On its own the drawing has no page to tell what it is, nor to take its colours from.
  function pictureOf(figure) {
    const drawn = figure.place.querySelector("svg").cloneNode(true);
    const style = getComputedStyle(document.documentElement);
    const { color } = getComputedStyle(document.body);
    const { backgroundColor } = getComputedStyle(figure.place.closest("figure"));
    const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
    const outer = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const [wide, high] = [width + 32, height + 84];
    for (const [name, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` })) outer.setAttribute(name, value);
    outer.setAttribute("style", `color: ${color}; background: ${backgroundColor}`);
    drawn.setAttribute("x", 16);
    drawn.setAttribute("y", 68);
    outer.append(line(figure.title, 30, 17, 600, color), line(shownBy(figure), 52, 13, 400, color), drawn);
    const text = new XMLSerializer().serializeToString(outer)
      .replaceAll("currentColor", color)
      .replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim())
      // The browser writes the address of the page before the name of a gradient.
      .replace(/url\((?:&quot;|["'])?[^)#]*#([^)"'&]+)(?:&quot;|["'])?\)/g, "url(#$1)");
    return new Blob([text], { type: "image/svg+xml" });
  }

  function line(words, y, size, weight, color) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "text");
    const set = { x: 16, y, fill: color, "font-size": size, "font-weight": weight, "font-family": "system-ui, sans-serif" };
    for (const [name, value] of Object.entries(set)) made.setAttribute(name, value);
    made.textContent = words;
    return made;
  }

  // The method, seed and measure of a figure, and the data.
  function shownBy(figure) {
    const said = { method: `${chosen.method}`, seed: `seed ${chosen.seed}`, task: `${chosen.task}`, measure: Object.fromEntries(switches.measure.options)[chosen.measure] };
    return [...figure.by.map((name) => said[name]), source].filter(Boolean).join(" · ");
  }

  async function rastered(picture, background) {
    const image = new Image();
    image.src = URL.createObjectURL(picture);
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [3 * image.width, 3 * image.height];
    const context = canvas.getContext("2d");
    context.fillStyle = background;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done));
  }

  async function save(figure, kind) {
    if (!figure.wanted) await later(() => draw(figure));
    await work;
    const picture = pictureOf(figure);
    const paper = getComputedStyle(figure.place.closest("figure")).backgroundColor;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(kind === "svg" ? picture : await rastered(picture, paper));
    const which = figure.by.map((name) => chosen[name]).join(" ").toLowerCase().replace(/[^a-z0-9]+/g, "-");
    link.download = `${[figure.name, which].filter(Boolean).join("-")}.${kind}`;
    link.click();
  }

  async function choose(name, value) {
    chosen[name] = value;
    const changed = figures.filter((figure) => figure.by.includes(name));
    changed.forEach(describe);
    await later(() => Promise.all(changed.filter(({ wanted }) => wanted).map(draw)));
    const said = document.getElementById("said");
    if (said) said.textContent = `Now shown: ${Object.values(chosen).filter((value) => value !== "").join(", ")}`;
  }

  for (const input of document.querySelectorAll("[data-switch]")) {
    input.addEventListener("change", () => {
      const name = input.dataset.switch;
      choose(name, switches[name].options[input.value][0]);
    });
  }
  // On paper the page is as wide as the paper, and nobody tells the charts by themselves.
  async function fitPaper(figure) {
    if (!figure.wanted) await draw(figure); // done before the paper is laid out: no step of it waits for anything
    if (!figure.chart || figure.place.hidden) return;
    const [width, wanted] = sizeOf(figure, figure.wide ? 640 : 295);
    const height = Math.min(wanted, onPaper);
    figure.width = width;
    figure.chart.width(width).height(height).run();
    heighten(figure, height)?.run();
  }
  addEventListener("beforeprint", () => figures.forEach(fitPaper));
  addEventListener("afterprint", () => figures.forEach(resize));

  const wide = document.getElementById("methods");
  const tellMore = () => (document.querySelector(".more").hidden = wide.scrollWidth <= wide.parentElement.clientWidth + 1);
  new ResizeObserver(tellMore).observe(wide.parentElement);

  for (const figure of figures) {
    const element = document.getElementById(figure.name);
    figure.place = element.querySelector(".chart");
    figure.foot = element.querySelector(".foot");
    figure.behind = element.querySelector("details");
    for (const button of element.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => save(figure, button.dataset.save));
    }
    new ResizeObserver(() => resize(figure)).observe(figure.place);
    figure.nothing = element.querySelector(".none");
    figure.nothing.textContent = figure.absent;
    figure.behind.addEventListener("toggle", () => figure.behind.open && tabulate(figure));
  }
  // A chart is drawn when it comes near the screen: most readers of a long page never see most of it.
  const nearby = new IntersectionObserver(async (seen) => {
    const come = seen.filter((one) => one.isIntersecting).map((one) => one.target);
    for (const figure of figures) if (!figure.wanted && come.includes(figure.place)) later(() => draw(figure));
    await work;
    document.documentElement.dataset.drawn ??= Math.round(performance.now() - started); // the first screen
  }, { rootMargin: "50% 0px" });
  figures.forEach(describe);
  for (const figure of figures) nearby.observe(figure.place);
})();
