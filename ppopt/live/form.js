"use strict";
// The form: what it says is a model file; the server on this machine answers with pages.

(() => {
  const byId = (id) => document.getElementById(id);
  const known = JSON.parse(byId("known").textContent);
  const state = { tab: "model", stream: null };

  const make = (tag, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };
  const idOf = (key) => `field-${key.replaceAll(".", "-")}`;

  // --- the fields ---------------------------------------------------------------------------------------------

  function build() {
    for (const [title, fields] of Object.entries(known.groups)) {
      const group = make("fieldset", {}, make("legend", { textContent: title }));
      for (const field of fields) {
        const id = idOf(field.key);
        const input = field.choices.length
          ? make("select", { id }, ...[...(field.key === "pipeline.placement" ? [] : [""]), ...field.choices].map((text) => make("option", { textContent: text })))
          : make("input", { id, type: "text", spellcheck: false, autocomplete: "off" });
        const parts = [make("label", { htmlFor: id, textContent: field.label }), input];
        if (field.hint) parts.push(make("small", { textContent: field.hint }));
        group.append(make("div", { className: "field" }, ...parts));
      }
      byId("groups").append(group);
    }
    const head = make("tr", {}, ...known.layer.map((name) => make("th", { textContent: name, scope: "col" })), make("th"));
    byId("layers").tHead.append(head);
    for (const name of known.schedules) {
      const box = make("input", { type: "checkbox", value: name, checked: known.chosen.includes(name) });
      byId("schedules").lastElementChild.append(make("label", {}, box, ` ${name}`));
    }
    byId("plan").value = known.plan;
    byId("seconds").max = known.seconds;
    show(known.given);
  }

  function row(values = {}) {
    const cells = known.layer.map((name) => {
      const input = make("input", { type: "text", value: values[name] || "", spellcheck: false, ariaLabel: name });
      input.dataset.name = name;
      return make("td", {}, input);
    });
    const remove = make("button", { type: "button", textContent: "remove" });
    const line = make("tr", {}, ...cells, make("td", {}, remove));
    remove.addEventListener("click", () => line.remove());
    byId("layers").tBodies[0].append(line);
  }

  function show(given) {
    for (const [key, text] of Object.entries(given.fields)) {
      const input = byId(idOf(key));
      if (text && input.tagName === "SELECT" && ![...input.options].some((option) => option.value === text)) input.append(make("option", { textContent: text }));
      if (text || input.tagName !== "SELECT" || key !== "pipeline.placement") input.value = text;
    }
    byId("layers").tBodies[0].replaceChildren();
    given.layers.forEach(row);
    byId("layers-box").open = given.layers.length > 0;
    byId("rest").value = given.rest;
    byId("rest-box").open = given.rest.trim() !== "";
  }

  function given() {
    const fields = {};
    for (const group of Object.values(known.groups)) for (const { key } of group) fields[key] = byId(idOf(key)).value;
    const layers = [...byId("layers").tBodies[0].rows].map((line) =>
      Object.fromEntries([...line.querySelectorAll("input")].map((input) => [input.dataset.name, input.value])));
    return { fields, layers: layers.filter((layer) => Object.values(layer).some(Boolean)), rest: byId("rest").value };
  }

  const chosen = () => [...byId("schedules").querySelectorAll("input:checked")].map((box) => box.value);

  // --- asking -------------------------------------------------------------------------------------------------

  async function ask(path, body) {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Ppopt-Token": known.token }, body: JSON.stringify(body) });
    const tree = await answer.json().catch(() => ({ error: answer.statusText || `error ${answer.status}` }));
    if (!answer.ok) throw Object.assign(new Error(tree.error || answer.statusText), { key: tree.key || "" });
    return tree;
  }

  function clear() {
    byId("error").textContent = "";
    byId("messages").replaceChildren();
    byId("output-box").hidden = true;
    for (const input of document.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    for (const said of document.querySelectorAll(".field output")) said.remove();
  }

  // What is wrong, beside its field where it has one.
  function refused(error) {
    byId("error").textContent = error.message;
    const bare = (error.key || "").split("[")[0], place = /^layers\[(\d+)\]\.?(\w*)/.exec(error.key || "");
    let input = bare && byId(idOf(bare));
    if (place) {
      const line = byId("layers").tBodies[0].rows[Number(place[1])];
      input = line && (line.querySelector(`[data-name="${place[2]}"]`) || line.querySelector("input"));
    }
    if (!input && ["seconds", "objective", "plan"].includes(bare)) input = byId(bare);
    if (!input) return;
    input.setAttribute("aria-invalid", "true");
    const field = input.closest(".field");
    if (field) field.append(make("output", { textContent: error.message.replace(`${error.key}: `, "") }));
    input.focus();
  }

  function answered(answer) {
    byId("messages").append(...answer.messages.map((text) => make("li", { textContent: text })));
    byId("frame").hidden = byId("kept").hidden = !answer.page;
    if (!answer.page) return;
    byId("frame").src = answer.page;
    byId("download").href = `${answer.page}?download`;
    byId("alone").href = answer.page;
    byId("kept").scrollIntoView({ block: "start" });
  }

  async function compare() {
    clear();
    byId("progress").textContent = "comparing …";
    try {
      answered(await ask("/compare", { ...given(), schedules: chosen(), memory: byId("memory").checked }));
    } catch (error) {
      refused(error);
    }
    byId("progress").textContent = "";
  }

  // --- searching ----------------------------------------------------------------------------------------------

  const number = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(6))));

  function going(event) {
    const gap = event.value && event.bound !== null ? ` · gap ${(100 * (1 - event.bound / event.value)).toFixed(1)} %` : "";
    const at = event.at && event.at.length ? ` · ${event.at.join(": ")}` : "";
    byId("progress").textContent = `${event.seconds.toFixed(1)} s · best ${number(event.value)} · lower bound ${number(event.bound)}${gap}${at}`;
  }

  async function search(what) {
    clear();
    const common = { seconds: Number(byId("seconds").value), memory: byId("memory").checked };
    try {
      const body = what === "plan" ? { plan: byId("plan").value } : { ...given(), schedules: chosen(), objective: byId("objective").value };
      const { job } = await ask(`/${what}`, { ...common, ...body });
      byId("progress").textContent = "beginning …";
      busy(true);
      state.stream = new EventSource(`/events/${job}`);
      state.stream.addEventListener("message", (message) => heard(JSON.parse(message.data)));
      state.stream.addEventListener("error", () => {
        done();
        byId("error").textContent = "the search is gone";
      });
    } catch (error) {
      refused(error);
    }
  }

  function heard(event) {
    if (event.kind === "progress") return going(event);
    if (event.kind === "note") return byId("messages").append(make("li", { textContent: event.text }));
    done();
    byId("progress").textContent = "";
    answered(event);
    byId("output").textContent = event.output;
    byId("output-box").hidden = !event.output;
    byId("output-box").open = !event.page || state.tab === "plan";
    if (!event.page && event.code !== 0) byId("error").textContent = { 3: "no schedule satisfies the model", 4: "nothing was found in this time", 130: "stopped, with nothing to keep" }[event.code] || "";
  }

  function busy(on) {
    byId("stop").disabled = !on;
    for (const id of ["solve", "begin"]) byId(id).disabled = on;
  }

  function done() {
    if (state.stream) state.stream.close();
    state.stream = null;
    busy(false);
  }

  // --- the model file -----------------------------------------------------------------------------------------

  async function save() {
    clear();
    try {
      const { toml } = await ask("/model", given());
      const link = make("a", { href: `data:application/toml;charset=utf-8,${encodeURIComponent(toml)}`, download: "model.toml" });
      link.click();
    } catch (error) {
      refused(error);
    }
  }

  async function load() {
    clear();
    const [file] = byId("load").files;
    if (!file) return;
    try {
      show(await ask("/model", { toml: await file.text() }));
    } catch (error) {
      refused(error);
    }
    byId("load").value = "";
  }

  function tab(name) {
    state.tab = name;
    for (const each of ["model", "plan"]) {
      byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      byId(`panel-${each}`).hidden = each !== name;
    }
    byId("begin").hidden = name !== "plan";
    byId("compare").hidden = byId("solve").hidden = byId("objective-box").hidden = name === "plan";
  }

  build();
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  byId("add").addEventListener("click", () => row());
  byId("compare").addEventListener("click", compare);
  byId("solve").addEventListener("click", () => search("solve"));
  byId("begin").addEventListener("click", () => search("plan"));
  byId("stop").addEventListener("click", () => ask("/stop", {}).catch(refused));
  byId("save").addEventListener("click", save);
  byId("load").addEventListener("change", load);
  byId("tab-model").addEventListener("click", () => tab("model"));
  byId("tab-plan").addEventListener("click", () => tab("plan"));
  document.body.dataset.ready = "1";
})();
