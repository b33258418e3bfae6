// The panel of a sentence: its words, and the context that decided the selected word.

import * as api from "./api.js";
import { button, byId, counted, make, say } from "./dom.js";
import { inPoints, inText, wordsOf } from "./words.js";

const SHOWN = 6; // most listed context sentences
const SLIGHT = 0.1; // nats: below, a word is at most a tenth more or less probable
const SEVERAL = 0.5; // nats: above, the context as a whole is reported even if no single sentence decides
const MEANING =
  "Numbers, in nats: log-probability of the word with the context sentence minus without it; " +
  "next to a word, its log-probability with all context minus without any.";

/** Shows a sentence of a translation; `failed(error)` is called with errors. */
export class Panel {
  constructor(reading, failed) {
    Object.assign(this, { reading, failed });
    this.place = byId("panel");
    this.asked = null;
    this.shown = null;
  }

  get open() {
    return !this.place.hidden;
  }

  /** Shows a sentence; `focus`: move the focus to its first word. */
  show(column, number, focus) {
    const { system, sentences } = this.reading.translations[column];
    const { source, target, confidence, low } = sentences[number];
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
        make("span", { class: "soft of-sentence" }, `${system.name}${described(confidence, low)}`),
        make("div", { class: "line end" }, button("Close", () => this.close(true), { id: "panel-close" })),
      ),
      make("p", { class: "asked-of", lang: system.source.code, dir: "auto" }, source),
      make("p", { id: "panel-question" }, "Which context decided this word?"),
      make(
        "div",
        { class: "words", role: "group", "aria-labelledby": "panel-question", lang: system.target.code, dir: "auto" },
        ...this.words.map((word) => word.button),
      ),
      this.found,
    );
    this.place.hidden = false;
    this.#uncover();
    if (focus) (this.words[0]?.button ?? byId("panel-close")).focus();
  }

  /** Requests which context decided a word. */
  async ask(column, number, word) {
    if (this.shown?.column !== column || this.shown.number !== number || !this.open) this.show(column, number, false);
    this.#stop();
    for (const each of this.words) {
      each.button.setAttribute("aria-pressed", String(each.first === word.first));
    }
    const translation = this.reading.translations[column];
    if (translation.sentences.some((each) => each.target === null)) {
      this.#tell("The rest of the document is not translated yet; try again later.");
      return;
    }
    const asking = new AbortController();
    this.asked = asking;
    this.#tell("Removing each context sentence in turn …");
    const content = {
      system: translation.system.name,
      sources: translation.sentences.map((each) => each.source),
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
      this.failed(error);
    }
  }

  /** Closes the panel; `back`: move the focus to the sentence. */
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

  // Scroll so that the sentence is visible above the panel.
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
    const { system, sentences } = this.reading.translations[column];
    const place = (points) => inText(sentences[number].target, points);
    const ranked = answer.contexts.toSorted((a, b) => Math.abs(b.change) - Math.abs(a.change));
    const most = Math.max(1, ...ranked.map((each) => Math.abs(each.change)));
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
      verdict(word, found, ranked[0], all, system, sentences),
      alternative ? make("p", {}, "Without this sentence, the system writes: ", quoted(alternative, system.target.code)) : "",
      shown.length ? make("ol", { class: "influences" }, ...shown) : "",
      more > 0 ? make("p", { class: "soft small" }, `and ${counted(more, "sentence")} with less influence`) : "",
      make("p", { class: "soft small" }, MEANING),
    ];
    this.found.replaceChildren(...parts);
    say(parts[0].textContent);
    this.#uncover();
  }

  #influence(column, { number, side, change }, most) {
    const { system, sentences } = this.reading.translations[column];
    const { source, target } = sentences[number];
    const bar = make("span", { class: change < 0 ? "bar down" : "bar up", "aria-hidden": "true" });
    bar.style.setProperty("--length", `${(100 * Math.abs(change)) / most}%`);
    return make(
      "li",
      {},
      make("span", { class: "figures" }, signed(change)),
      make("span", { class: "track" }, bar),
      make(
        "span",
        {},
        `sentence ${number + 1}, `,
        quoted(source, system.source.code),
        side === "both" ? make("span", { class: "soft" }, " ", quoted(target, system.target.code)) : "",
      ),
    );
  }
}

// Highlight a context sentence, and its translation if the system reads both sides; the figure is at the source.
function lights({ number, side, change }, most) {
  if (Math.abs(change) < SLIGHT) return [];
  const light = { number, share: Math.min(1, Math.abs(change) / most), up: change > 0 };
  const source = { ...light, side: "source", figure: signed(change) };
  return side === "both" ? [source, { ...light, side: "target", figure: "" }] : [source];
}

function described(confidence, low) {
  if (confidence === null || confidence === undefined) return "";
  return ` · confidence ${confidence.toFixed(2)}${low ? ", one of the lowest in this document" : ""}`;
}

// The result in words: one sentence decided the word, or several together, or none.
function verdict(word, found, strongest, all, system, sentences) {
  const sentence = ({ number }) => [`sentence ${number + 1}, `, quoted(sentences[number].source, system.source.code)];
  let parts = [" follows from its own sentence: no context makes it much more or less probable."];
  if (found) {
    const effect = `${times(found.change)} as probable as without it (${signed(found.change)})`;
    parts = [" was decided by ", ...sentence(found), ` With it, the word is ${effect}.`];
  } else if (strongest && Math.abs(all) >= SEVERAL) {
    const effect = ` is ${times(all)} as probable with all of the context as with none (${signed(all)})`;
    parts = [effect, "; no single sentence decides it. The strongest is ", ...sentence(strongest)];
    parts.push(` (${signed(strongest.change)}).`);
  }
  return make("p", { class: "verdict" }, quoted(word.text, system.target.code), ...parts);
}

// The factor of the probability for a change of the log-probability.
function times(nats) {
  const factor = Math.min(Math.exp(nats), 1e6);
  return `${factor < 10 ? factor.toPrecision(2) : Math.round(factor).toLocaleString("en")} times`;
}

const quoted = (text, code) => make("q", { lang: code, dir: "auto" }, text);

const signed = (nats) => `${nats < 0 ? "−" : "+"}${Math.abs(nats).toFixed(2)}`;
