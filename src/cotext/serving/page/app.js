// The page of Cotext: the systems of the server, the selected ones, and the connections between parts of the page.

import * as api from "./api.js";
import { byId, chooser, counted, dropPlace, make, showError } from "./dom.js";
import { changeText, openDesk, translate } from "./desk.js";
import { Files } from "./files.js";
import { Glossary, pairOf } from "./glossary.js";
import { reads } from "./reading.js";

const PARTS = ["text", "files", "glossary"];

// Example documents by source language, in which translations of words depend on other sentences.
const EXAMPLES = {
  en: [
    "Anna bought a lamp at the market. It was cheap, but it still works.",
    "Our neighbour has written a novel. It will be published in spring.",
    "Did you lock the door? I think I did.",
    "The city is building a new bridge. The old one is closed, and in May it will be pulled down.",
  ].join("\n"),
};

// For systems trained on the controlled corpus, which know only its words.
const CONTROLLED = [
  "Clara is drinking tea with the director. There was an old lamp upstairs. It was fragile. Can you help Peter?",
  "Yesterday Anna sang. The evenings were cold. So did Felix.",
  "Peter found a ring. Unfortunately it was small. Later Julia lost it.",
].join("\n");

// The example for a system, or null if there is none in its source language.
const exampleOf = (system) => (system.controlled ? CONTROLLED : EXAMPLES[system.source.code] ?? null);

let about = null; // systems and limits of the server
let pause = null; // the timer of a pause in typing

let stale = false; // whether the glossary has changed since the last translation

const glossary = new Glossary(() => {
  describe();
  stale = true;
  renew();
});
const files = new Files(() => ({ system: system(), glossary: glossary.for(system()) }), askForKey);

const named = (name) => about.systems.find((each) => each.name === name);
const system = () => named(byId("system").value);
const beside = () => named(byId("beside").value) ?? null;

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
  const kept = api.recall("system");
  if (named(kept)) byId("system").value = kept;
  chosen(api.recall("beside"));
  byId("systems").hidden = false;
  if (about.key_required && !api.recall("key")) askForKey({ needsKey: true, message: "" });
  go();
}

function option(each, languages) {
  const pair = languages ? `${each.source.name} → ${each.target.name}, ` : "";
  return make("option", { value: each.name }, `${pair}${each.name}: ${reads(each)}`);
}

// Update the page for the selected system; the second one must have the same languages.
function chosen(second) {
  const first = system();
  const others = about.systems.filter((each) => each !== first && pairOf(each) === pairOf(first));
  byId("beside").replaceChildren(
    make("option", { value: "" }, others.length ? "nothing" : "no other system for these languages"),
    ...others.map((each) => option(each, false)),
  );
  byId("beside").disabled = !others.length;
  if (others.includes(named(second))) byId("beside").value = second;
  byId("source").lang = first.source.code;
  byId("source-label").textContent = `Your document, ${first.source.name}`;
  byId("example").hidden = !exampleOf(first);
  byId("example-about").hidden = byId("example").hidden || explaining() === null;
  glossary.show(first);
  describe();
  api.remember("system", first.name);
  api.remember("beside", beside()?.name ?? null);
}

function describe() {
  const terms = glossary.for(system()).length;
  byId("about").textContent = terms ? `With ${counted(terms, "term")} of the glossary.` : "";
}

function askForKey(error) {
  if (!error.needsKey) return;
  byId("key-form").hidden = false;
  showError("key-error", api.recall("key") ? error.message : "");
  byId("key").focus();
}

function start() {
  stale = false;
  const text = byId("source").value;
  const wrong = text.trim() ? "" : "There is nothing to translate yet: type or paste a text, or try the example.";
  showError("text-error", wrong);
  if (wrong) byId("source").focus();
  else translate(text, [system(), beside()].filter(Boolean), (each) => glossary.for(each));
}

// Another system is selected: translate a visible text again; the server keeps its answers for some minutes.
function choose() {
  const before = byId("source").lang;
  chosen(beside()?.name);
  if (byId("result").hidden) return;
  if (byId("source").lang !== before) changeText();
  else start();
}

// Translate a visible text again if the glossary has changed.
function renew() {
  if (stale && !byId("part-text").hidden && !byId("result").hidden) start();
}

// Two systems for the example: one that reads documents, and one that reads sentences.
function explaining() {
  const same = about.systems.filter((each) => pairOf(each) === pairOf(system()));
  const documents = system().view === "sentence" ? same.find((each) => each.view !== "sentence") : system();
  const sentences = same.find((each) => each.view === "sentence");
  return documents && sentences ? [documents, sentences] : null;
}

function tryExample() {
  const two = explaining(), text = byId("source").value.trim(), example = exampleOf(system());
  if (text && text !== example.trim() && !confirm("Replace your document with the example?")) return;
  write(example);
  if (two) {
    byId("system").value = two[0].name;
    chosen(two[1].name);
  }
  start();
}

function go() {
  if (!about) return;
  const part = PARTS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "text";
  for (const each of PARTS) {
    byId(`part-${each}`).hidden = each !== part;
    if (each === part) byId(`go-${each}`).setAttribute("aria-current", "page");
    else byId(`go-${each}`).removeAttribute("aria-current");
  }
  byId("comparing").hidden = part !== "text";
  if (part === "files") files.look();
  renew();
}

function write(text) {
  byId("source").value = text;
  noted();
}

// The text has changed; it is counted and saved when typing pauses.
function noted() {
  clearTimeout(pause);
  pause = setTimeout(keepText, 200);
}

function keepText() {
  const text = byId("source").value;
  api.remember("text", text);
  byId("size").textContent = text ? counted(text.length, "character") : "";
}

// Plain text in UTF-8 is opened in the editor; other files are translated as files.
async function take([file, ...others]) {
  const plain = /\.(txt|text)$/i.test(file.name) || (file.type === "text/plain" && !file.name.includes("."));
  if (plain && !others.length && file.size <= about.limits.text_bytes) {
    const text = await file.text();
    if (!text.includes("\uFFFD")) {
      write(text.replace(/^\uFEFF/, ""));
      showError("text-error", "");
      changeText();
      return;
    }
  }
  location.hash = "files";
  await files.submit([file, ...others]);
}

function listen() {
  byId("writing").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.remember("key", byId("key").value.trim());
    byId("key").value = "";
    byId("key-form").hidden = true;
    byId("main").focus({ preventScroll: true });
    begin();
  });
  byId("source").addEventListener("input", () => {
    noted();
    showError("text-error", "");
  });
  byId("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  });
  for (const id of ["system", "beside"]) byId(id).addEventListener("change", () => choose());
  byId("example").addEventListener("click", tryExample);
  chooser("open", "open-file", take);
  dropPlace(byId("part-text"), take);
  addEventListener("pagehide", keepText);
  addEventListener("hashchange", () => {
    go();
    byId("main").focus({ preventScroll: true });
  });
}

listen();
openDesk(askForKey);
write(api.recall("text", ""));
begin();
