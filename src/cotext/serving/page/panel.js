// The panel of a sentence: its words, and which context decided the one that was asked about.

import * as api from "./api.js";
import { button, byId, counted, make, say } from "./dom.js";
import { inPoints, inText, wordsOf } from "./words.js";

const SHOWN = 6; // context sentences that are listed; of more, their number
const SLIGHT = 0.1; // nats: below, a word is at most a tenth more or less probable
const SEVERAL = 0.5; // nats of all context: then it is told, though no sentence decides alone
const MEANING =
  "Figures: the logarithm of the word's probability with that sentence minus the one without it, in nats; " +
  "beside a word, with all context minus with none.";

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
    this.found = make("div", { class: "found" });
    this.place.replaceChildren(
      make(
        "div",
        { class: "line" },
        make("h3", { id: "panel-title" }, `Sentence ${number + 1}`),
        make("span", { class: "soft of-sentence" }, `${system.name}${described(confidence, low, edited)}`),
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
    this.#uncover();
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
      characters: [word.first, word.stop].map((place) => inPoints(translation.sentences[number].target, place)),
    };
    try {
      const answer = await api.explain(content, asking.signal);
      if (!asking.signal.aborted) this.#explained(column, number, answer);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.found.replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
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

  // The sentence stays in sight above the panel.
  #uncover() {
    const sentence = this.reading.element(this.shown.column + 1, this.shown.number).getBoundingClientRect();
    const covered = sentence.bottom + 12 - this.place.getBoundingClientRect().top;
    if (covered > 0) scrollBy(0, covered);
  }

  #tell(message) {
    this.found.replaceChildren(make("p", {}, message));
    say(message);
  }

  #explained(column, number, answer) {
    const { word, decisive, alternative, words } = answer;
    const { system, sources, sentences } = this.reading.translations[column];
    const place = (points) => inText(sentences[number].target, points);
    const ranked = bySentence(answer.contexts);
    const most = Math.max(1, ...ranked.map((each) => Math.abs(each.together)));
    this.reading.light(column, ranked.flatMap((each) => lights(each, most)), number, place(word.first));
    for (const { first, change } of words) {
      const own = this.words.find((each) => each.first === place(first));
      if (!own || Math.abs(change) < SLIGHT) continue;
      own.button.replaceChildren(own.text, make("small", { class: "figures", lang: "en" }, ` ${signed(change)}`));
    }
    const found = ranked.find((each) => each.number === decisive);
    const all = words.filter((each) => each.first < word.stop && word.first < each.stop).reduce((sum, each) => sum + each.change, 0);
    const shown = ranked.slice(0, SHOWN).map((each) => this.#influence(column, each, most));
    const more = ranked.length - shown.length;
    const parts = [
      verdict(word, found, ranked[0], all, system, sources),
      alternative ? make("p", {}, "Without it, this system writes: ", quoted(alternative, system.target.code)) : "",
      shown.length ? make("ol", { class: "influences" }, ...shown) : "",
      more > 0 ? make("p", { class: "soft small" }, `and ${counted(more, "sentence")} of less influence`) : "",
      make("p", { class: "soft small" }, MEANING),
    ];
    this.found.replaceChildren(...parts);
    say(parts[0].textContent);
    this.#uncover();
  }

  #influence(column, { number, together, source, target }, most) {
    const { system, sources, sentences } = this.reading.translations[column];
    const bar = make("span", { class: together < 0 ? "bar down" : "bar up", "aria-hidden": "true" });
    bar.style.setProperty("--length", `${(100 * Math.abs(together)) / most}%`);
    const sides = target === null ? "" : ` source alone ${signed(source)}, translation alone ${signed(target)}`;
    return make(
      "li",
      {},
      make("span", { class: "figures" }, signed(together)),
      make("span", { class: "track" }, bar),
      make(
        "span",
        {},
        `sentence ${number + 1}, `,
        quoted(sources[number].source, system.source.code),
        target === null ? "" : make("span", { class: "soft" }, " ", quoted(sentences[number].target, system.target.code)),
        make("span", { class: "soft small" }, sides),
      ),
    );
  }
}

// One entry for each context sentence: with both sides, and with each alone where the system reads both.
function bySentence(contexts) {
  const found = new Map();
  for (const { number, side, change, together } of contexts) {
    const one = found.get(number) ?? { number, together: together ?? change, source: null, target: null };
    one[side] = change;
    found.set(number, one);
  }
  return [...found.values()].sort((a, b) => Math.abs(b.together) - Math.abs(a.together));
}

// A context sentence lights up on the source side by both, with the figure; in the translation by what is its own.
function lights({ number, together, target }, most) {
  return [
    { number, side: "source", change: together },
    { number, side: "target", change: target ?? 0 },
  ]
    .filter(({ change }) => Math.abs(change) >= SLIGHT)
    .map(({ change, ...where }) => ({
      ...where,
      share: Math.min(1, Math.abs(change) / most),
      figure: where.side === "source" ? signed(change) : "",
      up: change > 0,
    }));
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

// What the figures say in words: one sentence decided it, or several together, or none.
function verdict(word, found, strongest, all, system, sources) {
  const own = quoted(word.text, system.target.code);
  const sentence = ({ number }) => [`sentence ${number + 1}, `, quoted(sources[number].source, system.source.code)];
  const parts = [own, " follows from its own sentence: no context makes it much more or less probable."];
  if (found) {
    parts.splice(1, 1, " was decided by ", ...sentence(found));
    parts.push(` With it, the word is ${times(found.together)} as probable as without it (${signed(found.together)}).`);
  } else if (strongest && Math.abs(all) >= SEVERAL) {
    parts.splice(1, 1, ` is ${times(all)} as probable with all of the context as with none (${signed(all)})`);
    parts.push("; no sentence does it alone. The most telling is ", ...sentence(strongest));
    parts.push(` (${signed(strongest.together)}).`);
  }
  return make("p", { class: "verdict" }, ...parts);
}

// How many times as probable a change of the log-probability makes a word.
function times(nats) {
  const factor = Math.min(Math.exp(nats), 1e6);
  return `${factor < 10 ? factor.toPrecision(2) : Math.round(factor).toLocaleString("en")} times`;
}

const quoted = (text, code) => make("q", { lang: code, dir: "auto" }, text);

const signed = (nats) => `${nats < 0 ? "−" : "+"}${Math.abs(nats).toFixed(2)}`;
