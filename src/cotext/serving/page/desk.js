// The desk: a document translated by one or two systems, shown while it arrives, copied, and downloaded.

import * as api from "./api.js";
import { byId, counted, make, save, say, showError } from "./dom.js";
import { Panel } from "./panel.js";
import { Reading } from "./reading.js";

/**
 * A document translated by one system: its sentences as they arrive, and its text.
 *
 * Calls `listener.started(translation)` and `listener.sentence(translation, number)`. A sentence has `number`,
 * `paragraph`, `source`, `before`, `target` (null until translated), `confidence` and `low`.
 */
class Translation {
  constructor(system, text, glossary, listener) {
    Object.assign(this, { system, source: text, glossary, listener });
    this.sentences = [];
    this.text = null; // the complete translation, one paragraph per line
    this.seconds = null;
    this.running = null;
  }

  /** Translates the document until it is complete or cancelled; throws ApiError. */
  async start() {
    const running = new AbortController();
    this.running = running;
    const content = { system: this.system.name, text: this.source, glossary: this.glossary };
    try {
      for await (const { event, data } of api.translate(content, running.signal)) {
        this.#receive(event, data);
        if (this.text !== null) return;
      }
      throw new api.ApiError(0, "The connection broke before the translation was complete. Translate again.");
    } catch (error) {
      if (!running.signal.aborted) throw error;
    } finally {
      this.running = null;
    }
  }

  /** Cancels the translation; finished sentences are kept. */
  cancel() {
    this.running?.abort();
  }

  /** The number of translated sentences. */
  get translated() {
    return this.sentences.filter((each) => each.target !== null).length;
  }

  #receive(event, data) {
    if (event === "error") throw new api.ApiError(500, data.message);
    if (event === "start") {
      this.sentences = data.sentences.map((each) => ({ ...each, target: null, confidence: null, low: false }));
      this.listener.started(this);
    } else if (event === "sentence") {
      this.sentences[data.number].target = data.target;
      this.listener.sentence(this, data.number);
    } else if (event === "done") {
      for (const each of data.sentences) Object.assign(this.sentences[each.number], each);
      Object.assign(this, { text: data.text, seconds: data.seconds });
    }
  }
}

const reading = new Reading({
  word: (column, number, word) => panel.ask(column, number, word),
  sentence: (column, number, focus) => panel.show(column, number, focus),
  updated: () => progress(),
});
const panel = new Panel(reading, (error) => askForKey(error));

let translations = [];
let askForKey = () => {}; // called with every error

const running = () => translations.some((each) => each.running);

/** Adds listeners to the buttons of the desk; `failed(error)` is called with every error. */
export function openDesk(failed) {
  askForKey = failed;
  const click = (id, call) => byId(id).addEventListener("click", call);
  click("back", changeText);
  click("cancel", () => {
    stop();
    byId("result-title").focus();
  });
  click("copy", copy);
  click("download", () => save(new Blob([translations[0].text], { type: "text/plain" }), `translation.${translations[0].system.target.code}.txt`));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (panel.open) panel.close(true);
    else if (running()) stop();
  });
}

/** Returns to the source text. */
export function changeText() {
  stop();
  panel.close(false);
  byId("writing").hidden = false;
  byId("result").hidden = true;
  byId("source").focus();
}

/** Translates a text by these systems. */
export async function translate(text, systems, glossaryFor) {
  stop();
  panel.close(false);
  translations = systems.map((each) => new Translation(each, text, glossaryFor(each), listener));
  reading.place.replaceChildren();
  byId("writing").hidden = true;
  byId("result").hidden = false;
  byId("result-title").focus({ preventScroll: true });
  say("Translating.");
  await Promise.all(translations.map(follow));
}

// Handles events of translations, except replaced ones.
const listener = {
  started: (translation) => translations.includes(translation) && started(),
  sentence: (translation, number) => reading.translations.includes(translation) && reading.update(number),
};

// Source sentences have arrived: show them, with two systems only when both have divided the text alike.
function started() {
  if (translations.some((each) => !each.sentences.length)) return;
  const [first, ...others] = translations.map((each) => each.sentences.map((s) => s.source).join("\n"));
  if (others.some((each) => each !== first)) {
    showError("result-error", "These two systems divide this text into different sentences, so they cannot be compared. Choose one system.");
    stop();
    return;
  }
  if (reading.translations !== translations || !reading.place.hasChildNodes()) reading.show(translations);
  else reading.refresh();
  progress();
}

// Run a translation, and show the result.
async function follow(translation) {
  showError("result-error", "");
  let error = null;
  const ended = translation.start().catch((reason) => (error = reason));
  progress();
  await ended;
  if (!translations.includes(translation)) return;
  if (error) failed(translation, error);
  if (reading.translations === translations) reading.refresh();
  progress();
  finished();
}

// If one of two systems fails, the other one is shown; without any sentence, return to the source text.
function failed(translation, error) {
  const alone = translations.length === 1;
  const message = alone ? error.message : `${translation.system.name}: ${error.message}`;
  if (translation.sentences.length) showError("result-error", message);
  else if (alone) {
    changeText();
    showError("text-error", message);
  } else {
    showError("result-error", message);
    translations = translations.filter((each) => each !== translation);
    started();
  }
  askForKey(error);
}

// Nothing is being translated any more: write the line above the rows, and the legend.
function finished() {
  if (running()) return;
  const [first, other] = translations;
  const count = counted(first.sentences.length, "sentence");
  const parts = [];
  if (translations.some((each) => each.text === null)) {
    say("Stopped.");
    if (first.sentences.length) parts.push(`Stopped: ${first.translated.toLocaleString("en")} of ${count}.`);
  } else {
    say(`Translated ${count}.`);
    parts.push(`${count} ${first.seconds < 0.05 ? "at once" : `in ${first.seconds.toFixed(1)} s`}.`);
    if (other) {
      const different = first.sentences.filter((each, i) => each.target !== other.sentences[i].target).length;
      parts.push(`The two systems differ in ${different.toLocaleString("en")} of them.`);
    }
    if (translations.some((each) => each.system.explains)) parts.push("Click a word to see which context decided it.");
  }
  byId("summary").textContent = parts.join(" ");
  const all = translations.flatMap((each) => each.sentences);
  byId("legend-low").hidden = !all.some((each) => each.low);
  byId("legend-failed").hidden = !all.some((each) => each.target === null);
  byId("legend-mark").hidden = translations.length < 2;
}

function progress() {
  const busy = running();
  byId("running").hidden = !busy;
  byId("actions").hidden = busy;
  if (!busy) {
    for (const id of ["copy", "download"]) byId(id).disabled = translations[0].text === null;
    return;
  }
  const total = translations.reduce((sum, each) => sum + each.sentences.length, 0);
  const done = translations.reduce((sum, each) => sum + each.translated, 0);
  const bar = byId("progress");
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value");
  byId("count").textContent = total ? `${done.toLocaleString("en")} / ${total.toLocaleString("en")}` : "waiting …";
  byId("summary").textContent = "";
}

function stop() {
  for (const each of translations) each.cancel();
}

async function copy() {
  const { text } = translations[0];
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure connection, browsers copy only the selection.
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
