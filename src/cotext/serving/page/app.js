// The page of Cotext: what is chosen, what is translated, and how the parts of the page hear of each other.

import * as api from "./api.js";
import { byId, chooser, counted, dropPlace, make, save, say, showError } from "./dom.js";
import { editInPlace } from "./editing.js";
import { exampleOf } from "./examples.js";
import { Files } from "./files.js";
import { Glossary, pairOf } from "./glossary.js";
import { Panel } from "./panel.js";
import { languageName, Reading, reads } from "./reading.js";
import { recall, remember } from "./store.js";
import { Translation } from "./translation.js";

const PARTS = ["text", "files", "glossary"];
let about = null; // what the server says of itself
let translations = [];
let edited = []; // the translations that an undo belongs to, the last edit last

const reading = new Reading({
  word: (column, number, word) => panel.ask(column, number, word),
  sentence: (column, number, focus) => panel.show(column, number, focus),
  edit: (column, number) => edit(column, number),
});
const panel = new Panel(reading, { edit: (column, number) => edit(column, number), failed: askForKey });
const glossary = new Glossary(() => describe());
const files = new Files(() => ({ system: system(), glossary: glossary.for(system()) }), askForKey);

const named = (name) => about.systems.find((each) => each.name === name);
const system = () => named(byId("system").value);
const beside = () => named(byId("beside").value) ?? null;
const running = () => translations.some((each) => each.running);

// ---------------------------------------------------------------------------------- the server and its systems

async function begin() {
  showError("page-error", "");
  try {
    about = await api.systems();
  } catch (error) {
    askForKey(error);
    if (!error.needsKey) showError("page-error", error.message);
    return;
  }
  byId("key-form").hidden = true;
  files.accept(about);
  byId("open-file").accept = about.file_suffixes.join(",");
  const pairs = new Set(about.systems.map(pairOf));
  byId("system").replaceChildren(...about.systems.map((each) => option(each, pairs.size > 1)));
  const kept = recall("system");
  if (named(kept)) byId("system").value = kept;
  chosen(recall("beside"));
  byId("systems").hidden = false;
  if (about.key_required && !recall("key")) askForKey({ needsKey: true, message: "" });
  go();
}

function option(each, languages) {
  const pair = languages ? `${languageName(each.source)} → ${languageName(each.target)}, ` : "";
  return make("option", { value: each.name }, `${pair}${each.name}: reads ${reads(each)}`);
}

// A system is chosen: the second is one of the same languages.
function chosen(second) {
  const first = system();
  const others = about.systems.filter((each) => each !== first && pairOf(each) === pairOf(first));
  byId("beside").replaceChildren(
    make("option", { value: "" }, others.length ? "nothing" : "no other system of these languages"),
    ...others.map((each) => option(each, false)),
  );
  byId("beside").disabled = !others.length;
  if (others.includes(named(second))) byId("beside").value = second;
  byId("source").lang = first.source.code;
  byId("source-label").textContent = `Your document, ${languageName(first.source)}`;
  byId("example").hidden = !exampleOf(pairOf(first));
  byId("example-about").hidden = byId("example").hidden || explaining() === null;
  glossary.show(first);
  describe();
  remember("system", first.name);
  remember("beside", beside()?.name ?? null);
}

function describe() {
  const terms = glossary.for(system()).length;
  byId("about").textContent = terms ? `With ${counted(terms, "term")} of the glossary.` : "";
}

function askForKey(error) {
  if (!error.needsKey) return;
  byId("key-form").hidden = false;
  showError("key-error", recall("key") ? error.message : "");
  byId("key").focus();
}

// ------------------------------------------------------------------------------------------------- translating

function content() {
  const text = byId("source").value;
  if (!text.trim()) return [null, "There is nothing to translate yet: type or paste a text, or try the example."];
  const bytes = new TextEncoder().encode(text).length;
  const most = about.limits.text_bytes;
  if (bytes > most) {
    return [null, `The text has ${bytes.toLocaleString("en")} bytes, and at most ${most.toLocaleString("en")} are translated here: hand it in as a file.`];
  }
  return [text, ""];
}

// Translate what is written; `kept`: a translation of it that is complete already.
async function translate(kept = null) {
  const [text, wrong] = content();
  showError("text-error", wrong);
  if (wrong) {
    byId("source").focus();
    return;
  }
  const wanted = [system(), beside()].filter(Boolean);
  stop();
  panel.close(false);
  edited = edited.filter((each) => each === kept);
  translations = wanted.map((each) =>
    kept?.system === each ? kept : new Translation(each, text, glossary.for(each), listener),
  );
  reading.place.replaceChildren();
  byId("writing").hidden = true;
  byId("result").hidden = false;
  byId("result-title").focus({ preventScroll: true });
  say("Translating.");
  const missing = translations.filter((each) => each !== kept);
  if (missing.length) await Promise.all(missing.map((each) => follow(each, () => each.start())));
  else {
    started();
    finished(true);
  }
}

// What is heard of translations; of those that were replaced, nothing.
const listener = {
  started: (translation) => translations.includes(translation) && started(),
  sentence: (translation, number) => {
    if (!translations.includes(translation)) return;
    if (reading.translations === translations) reading.update(number);
    progress();
  },
};

// The sentences of a document are known; two systems are shown once both know them.
function started() {
  if (translations.some((each) => !each.sources.length) || differentSentences()) return;
  if (reading.translations !== translations || !reading.place.hasChildNodes()) reading.show(translations);
  else reading.refresh();
  progress();
}

function differentSentences() {
  const [first, ...others] = translations.map((each) => each.sources.map((s) => s.source).join("\n"));
  if (others.every((each) => each === first)) return false;
  showError("result-error", "These two systems divide this text into different sentences and cannot stand side by side: choose one.");
  stop();
  return true;
}

// Run a translation or what follows from an edit, and show how it ended.
async function follow(translation, run) {
  showError("result-error", "");
  let complete = false;
  try {
    const going = run();
    progress();
    complete = await going;
  } catch (error) {
    if (!translations.includes(translation)) return;
    showError("result-error", translations.length > 1 ? `${translation.system.name}: ${error.message}` : error.message);
    askForKey(error);
  }
  if (!translations.includes(translation)) return;
  if (reading.translations === translations) reading.refresh();
  progress();
  finished(complete);
}

function finished(complete) {
  if (running()) return;
  const [first] = translations;
  const count = first.sentences.length;
  if (!complete) say("Stopped.");
  else say(`Translated ${counted(count, "sentence")}.`);
  summary();
}

// What stands above the rows, once all is there.
function summary() {
  const each = translations[0];
  const missing = translations.some((one) => !one.sentences.length || one.sentences.some((s) => s.target === null));
  const parts = [];
  if (each.seconds !== null && !missing) parts.push(`${counted(each.sentences.length, "sentence")} in ${each.seconds.toFixed(1)} s.`);
  if (translations.length > 1 && !missing) {
    const [a, b] = translations.map((one) => one.sentences);
    const different = a.filter((s, i) => s.target !== b[i].target).length;
    parts.push(`The two systems differ in ${different.toLocaleString("en")} of them.`);
  }
  if (!missing && translations.some((one) => one.system.explains)) parts.push("Click a word to see which context decided it.");
  byId("summary").textContent = parts.join(" ");
  legend();
}

function legend() {
  const all = translations.flatMap((each) => each.sentences);
  byId("legend-low").hidden = !all.some((each) => each.low);
  byId("legend-edited").hidden = !all.some((each) => each.edited);
  byId("legend-changed").hidden = !all.some((each) => each.changed);
  byId("legend-failed").hidden = running() || !all.some((each) => each.target === null);
  byId("legend-mark").hidden = translations.length < 2;
}

function progress() {
  const busy = running();
  byId("running").hidden = !busy;
  byId("actions").hidden = busy;
  byId("undo").disabled = !edited.length;
  if (!busy) return;
  const total = translations.reduce((sum, each) => sum + each.sources.length, 0);
  const done = translations.reduce((sum, each) => sum + each.arrived, 0);
  const bar = byId("progress");
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value");
  byId("count").textContent = total ? `${done.toLocaleString("en")} / ${total.toLocaleString("en")}` : "waiting …";
  byId("summary").textContent = "";
}

function stop() {
  for (const each of translations) each.cancel();
}

// ---------------------------------------------------------------------------------------------------- editing

function edit(column, number) {
  const translation = translations[column];
  if (running()) return;
  panel.close(false);
  const { target } = translation.sentences[number];
  const leave = () => {
    reading.element(column + 1, number).replaceChildren();
    reading.refresh();
    reading.focus(column, number);
  };
  const keep = async (written) => {
    edited.push(translation);
    reading.element(column + 1, number).replaceChildren();
    say("The rest of the document follows.");
    await follow(translation, () => translation.edit(number, written));
    reading.focus(column, number);
  };
  editInPlace(reading.element(column + 1, number), target, translation.system.target.code, keep, leave);
}

function undo() {
  panel.close(false);
  edited.pop().undo();
  reading.refresh();
  progress();
  summary();
  say("The edit is undone.");
  if (byId("undo").disabled) byId("result-title").focus();
}

// ----------------------------------------------------------------------------------------- taking it elsewhere

async function copy() {
  const { text } = translations[0];
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure connection browsers copy what is selected alone.
    const field = make("textarea", { class: "hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  byId("copy").textContent = "Copied";
  setTimeout(() => (byId("copy").textContent = "Copy"), 2000);
  say("Copied.");
}

const fileName = (suffix) => `translation.${translations[0].system.target.code}.${suffix}`;

async function exportTmx() {
  const { system: of, pairs } = translations[0];
  showError("result-error", "");
  try {
    save(await api.tmx({ source: of.source.code, target: of.target.code, pairs }), fileName("tmx"));
  } catch (error) {
    showError("result-error", error.message);
    askForKey(error);
  }
}

// ------------------------------------------------------------------------------------------------ parts, events

function go() {
  if (!about) return;
  const part = PARTS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "text";
  for (const each of PARTS) {
    byId(`part-${each}`).hidden = each !== part;
    if (each === part) byId(`go-${each}`).setAttribute("aria-current", "page");
    else byId(`go-${each}`).removeAttribute("aria-current");
  }
  if (part === "files") files.look();
}

function write(text) {
  byId("source").value = text;
  remember("text", text);
  const bytes = new TextEncoder().encode(text).length;
  byId("size").textContent = text ? counted(text.length, "character") : "";
  byId("size").classList.toggle("error", about !== null && bytes > about.limits.text_bytes);
}

// Plain text is opened here; any other file is translated as one.
async function take([file, ...others]) {
  const plain = /\.(txt|text)$/i.test(file.name) || (file.type === "text/plain" && !file.name.includes("."));
  if (plain && !others.length && file.size <= about.limits.text_bytes) {
    write((await file.text()).replace(/^\uFEFF/, ""));
    showError("text-error", "");
    changeText();
    return;
  }
  location.hash = "files";
  await files.submit([file, ...others]);
}

function changeText() {
  stop();
  panel.close(false);
  byId("writing").hidden = false;
  byId("result").hidden = true;
  byId("source").focus();
}

// The picture that explains it: a system that reads documents beside one that does not.
function explaining() {
  const same = about.systems.filter((each) => pairOf(each) === pairOf(system()));
  const documents = system().view === "sentence" ? same.find((each) => each.view !== "sentence") : system();
  const sentences = same.find((each) => each.view === "sentence");
  return documents && sentences ? [documents, sentences] : null;
}

function tryExample() {
  const two = explaining();
  write(exampleOf(pairOf(system())));
  if (two) {
    byId("system").value = two[0].name;
    chosen(two[1].name);
  }
  translate();
}

function listen() {
  const click = (id, call) => byId(id).addEventListener("click", call);
  byId("writing").addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    remember("key", byId("key").value.trim());
    byId("key").value = "";
    byId("key-form").hidden = true;
    begin();
  });
  byId("source").addEventListener("input", () => {
    write(byId("source").value);
    showError("text-error", "");
  });
  byId("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  });
  for (const id of ["system", "beside"]) byId(id).addEventListener("change", () => choose());
  click("example", tryExample);
  click("back", changeText);
  click("cancel", stop);
  click("undo", undo);
  click("copy", copy);
  click("download", () => save(new Blob([translations[0].text], { type: "text/plain" }), fileName("txt")));
  click("tmx", exportTmx);
  chooser("open", "open-file", take);
  dropPlace(byId("part-text"), take);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (panel.open) panel.close(true);
    else if (running()) stop();
  });
  addEventListener("hashchange", () => {
    go();
    byId("main").focus({ preventScroll: true });
  });
}

// Another system is chosen; where a translation is shown, it follows, and what stays is not asked for again.
function choose() {
  chosen(beside()?.name);
  if (byId("result").hidden) return;
  const [first] = translations;
  const stays = first?.system === system() && !running() && first.sentences.every((each) => each.target !== null);
  translate(stays && first.sentences.length ? first : null);
}

listen();
write(recall("text", ""));
begin();
