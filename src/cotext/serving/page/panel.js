// The panel of a sentence: its words, and which context decided the one that was asked about.

import * as api from "./api.js";
import { button, byId, counted, make } from "./dom.js";
import { wordsOf } from "./words.js";

const SHOWN = 6; // context sentences that are listed; of more, their number
const SLIGHT = 0.1; // nats: a word is then less than an eighth more probable, or less so

/** Shows a sentence of a translation; `on` hears `edit(column, number)`, `closed()`, `failed(error)`. */
export class Panel {
  constructor(reading, on) {
    Object.assign(this, { reading, on });
    this.place = byId("panel");
    this.asked = null;
    this.shown = null;
  }

  get open() {
    return !this.place.hidden;
  }

  /** Show a sentence; `focus` its first word. */
  show(column, number, focus) {
    const { system, sentences, sources } = this.reading.translations[column];
    const { target, confidence, low, edited } = sentences[number];
    this.#stop();
    this.shown = { column, number };
    this.words = wordsOf(target, system.target.code).map((word) => ({
      ...word,
      button: button(word.text, () => this.ask(column, number, word), { "aria-pressed": "false" }),
    }));
    this.found = make("div", { class: "found", role: "status" });
    this.place.replaceChildren(
      make(
        "div",
        { class: "line" },
        make("h3", { id: "panel-title" }, `Sentence ${number + 1}`),
        make("span", { class: "soft" }, `${system.name}${described(confidence, low, edited)}`),
        make(
          "div",
          { class: "line end" },
          button("Edit", () => this.on.edit(column, number), { id: "panel-edit" }),
          button("Close", () => this.close(true), { id: "panel-close" }),
        ),
      ),
      make("p", { class: "asked-of", lang: system.source.code, dir: "auto" }, sources[number].source),
      make("p", { id: "panel-question" }, "Which context decided this word?"),
      make(
        "div",
        { class: "words", role: "group", "aria-labelledby": "panel-question", lang: system.target.code, dir: "auto" },
        ...this.words.map((word) => word.button),
      ),
      this.found,
    );
    if (!system.explains) this.#tell(unable(system));
    this.place.hidden = false;
    if (focus) (this.words[0]?.button ?? byId("panel-close")).focus();
  }

  /** Ask which context decided a word. */
  async ask(column, number, word) {
    if (this.shown?.column !== column || this.shown.number !== number || !this.open) this.show(column, number, false);
    this.#stop();
    for (const each of this.words) {
      each.button.setAttribute("aria-pressed", String(each.first === word.first));
    }
    const translation = this.reading.translations[column];
    if (!translation.system.explains) return;
    if (translation.sentences.some((each) => each.target === null)) {
      this.#tell("The rest of the document is still missing; ask again when it is translated.");
      return;
    }
    const asking = new AbortController();
    this.asked = asking;
    this.#tell("Taking each sentence of the context away in turn …");
    const content = {
      system: translation.system.name,
      sources: translation.sources.map((each) => each.source),
      targets: translation.sentences.map((each) => each.target),
      sentence: number,
      characters: [word.first, word.stop],
    };
    try {
      const answer = await api.explain(content, asking.signal);
      if (!asking.signal.aborted) this.#explained(column, number, answer);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.found.replaceChildren(make("p", { class: "error" }, error.message));
      this.on.failed(error);
    }
  }

  /** Close it; `back`: the focus goes to the sentence. */
  close(back) {
    this.#stop();
    this.place.hidden = true;
    if (back && this.shown) this.reading.focus(this.shown.column, this.shown.number);
    this.shown = null;
  }

  #stop() {
    this.asked?.abort();
    this.asked = null;
    this.reading.unlight();
  }

  #tell(message) {
    this.found.replaceChildren(make("p", {}, message));
  }

  #explained(column, number, answer) {
    const { word, contexts, decisive, alternative, words } = answer;
    const ranked = [...contexts].sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
    const most = Math.max(1, ...ranked.map((each) => Math.abs(each.change)));
    const telling = ranked.filter((each) => Math.abs(each.change) >= SLIGHT);
    this.reading.light(
      column,
      telling.map((each) => ({
        ...each,
        share: Math.min(1, Math.abs(each.change) / most),
        figure: signed(each.change),
        up: each.change > 0,
      })),
      number,
      word,
    );
    for (const { first, change } of words ?? []) {
      const own = this.words.find((each) => each.first === first);
      own?.button.classList.toggle("moved", Math.abs(change) >= SLIGHT);
    }
    const parts = [verdict(word, ranked, decisive, this.reading.translations[column])];
    if (alternative) parts.push(make("p", {}, "Without it, this system writes: ", quoted(alternative, this.#target(column))));
    if (ranked.length) parts.push(this.#list(column, ranked.slice(0, SHOWN), most));
    if (ranked.length > SHOWN) {
      parts.push(make("p", { class: "soft" }, `and ${counted(ranked.length - SHOWN, "other")} of less influence`));
    }
    parts.push(
      make("p", { class: "soft small" }, "Figures: log-probability of the word with that sentence, minus without it, in nats."),
    );
    this.found.replaceChildren(...parts);
  }

  #target(column) {
    return this.reading.translations[column].system.target.code;
  }

  #list(column, contexts, most) {
    const list = make("ol", { class: "influences" });
    const { system, sources, sentences } = this.reading.translations[column];
    for (const { number, side, text, change } of contexts) {
      const bar = make("span", { class: change < 0 ? "bar down" : "bar up", "aria-hidden": "true" });
      bar.style.setProperty("--length", `${(100 * Math.abs(change)) / most}%`);
      const code = side === "source" ? system.source.code : system.target.code;
      const shown = text || (side === "source" ? sources[number].source : sentences[number].target);
      list.append(
        make(
          "li",
          {},
          make("span", { class: "figures" }, signed(change)),
          make("span", { class: "track" }, bar),
          make("span", {}, `${side === "source" ? "source" : "translation"} ${number + 1}: `, quoted(shown, code)),
        ),
      );
    }
    return list;
  }
}

function described(confidence, low, edited) {
  if (edited) return " · edited by you";
  if (confidence === null || confidence === undefined) return "";
  return ` · confidence ${confidence.toFixed(2)}${low ? ", among the lowest here" : ""}`;
}

function unable(system) {
  return system.view === "sentence"
    ? `${system.name} reads each sentence alone: no context decided any of its words. Compare it with a system that reads the document.`
    : `${system.name} has no probabilities of single words, and cannot say which context decided one.`;
}

function verdict(word, ranked, decisive, { system, sources }) {
  const own = quoted(word.text, system.target.code);
  const found = ranked.find((each) => each.number === decisive);
  if (decisive === null || !found) {
    return make("p", { class: "verdict" }, own, " was decided by its own sentence: none of the context changes it much.");
  }
  const times = Math.exp(Math.abs(found.change));
  const factor = times < 10 ? times.toFixed(1) : Math.round(Math.min(times, 1e6)).toLocaleString("en");
  const less = found.change > 0 ? "less" : "more";
  return make(
    "p",
    { class: "verdict" },
    own,
    ` was decided by sentence ${decisive + 1}, `,
    quoted(sources[decisive].source, system.source.code),
    ` Without it the word is ${factor} times ${less} probable (${signed(found.change)}).`,
  );
}

const quoted = (text, code) => make("q", { lang: code, dir: "auto" }, text);

const signed = (nats) => `${nats < 0 ? "−" : "+"}${Math.abs(nats).toFixed(2)}`;
