// Source and translations side by side, by paragraph, or by sentence for two systems.
// For thousands of sentences, updates are written several at a time, and invisible rows are not rendered.

import { byId, counted, make } from "./dom.js";
import { differing, joiner, wordsOf } from "./words.js";

/**
 * The rows of one or two translations of a document. `on` has callbacks `word(column, number, word)`,
 * `sentence(column, number)` and `updated()`.
 */
export class Reading {
  constructor(on) {
    this.on = on;
    this.place = byId("rows");
    this.translations = [];
    this.places = []; // of the source, then of each translation: an element for each sentence
    this.waiting = new Set();
    this.lit = [];
    this.current = null;
    this.#listen();
  }

  /** Shows the sentences of these translations, whose sources are known. */
  show(translations) {
    this.translations = translations;
    const [{ sentences, system }] = translations;
    const compared = translations.length > 1;
    this.places = [[], ...translations.map(() => [])];
    this.unlight();
    const rows = [this.#head(system)];
    for (const [i, sentence] of sentences.entries()) {
      const starts = i === 0 || sentences[i - 1].paragraph !== sentence.paragraph;
      if (starts || compared) rows.push(this.#row(starts, compared));
      this.#add(rows.at(-1), sentence);
    }
    this.place.className = compared ? "compared" : "";
    this.place.replaceChildren(...rows);
    this.#reachable(this.element(1, 0));
    this.refresh();
  }

  /** Updates a sentence soon; thousands may come at once. */
  update(number) {
    if (!this.waiting.size) setTimeout(() => this.flush(), 50);
    this.waiting.add(number);
  }

  /** Writes all waiting updates. */
  flush() {
    for (const number of this.waiting) {
      for (const [column] of this.translations.entries()) this.#write(column, number);
    }
    this.waiting.clear();
    this.on.updated();
  }

  /** Updates all sentences. */
  refresh() {
    for (const { number } of this.translations[0].sentences) this.waiting.add(number);
    this.flush();
  }

  /** Returns the element of a sentence; column 0 is the source. */
  element(column, number) {
    return this.places[column][number];
  }

  /** Highlights context, `{side, number, share (0 to 1), figure (or empty), up}`, and the word at `first`. */
  light(column, contexts, number, first) {
    this.unlight();
    for (const { side, number: other, share, figure, up } of contexts) {
      const element = this.element(side === "source" ? 0 : column + 1, other);
      if (!element) continue;
      element.classList.add("lit", up ? "up" : "down");
      element.style.setProperty("--shade", `${Math.round(12 + 33 * share)}%`);
      const note = make("span", { class: "figure" }, figure);
      if (figure) element.append(note);
      this.lit.push({ element, note });
    }
    const chosen = this.element(column + 1, number);
    this.#spell(column, number);
    chosen.querySelector(`.w[data-first="${first}"]`)?.classList.add("asked");
  }

  /** Removes all highlights. */
  unlight() {
    for (const { element, note } of this.lit) {
      element.classList.remove("lit", "up", "down");
      element.style.removeProperty("--shade");
      note.remove();
    }
    this.lit = [];
    for (const each of this.place.querySelectorAll(".asked")) each.classList.remove("asked");
  }

  /** Moves the focus to a sentence of a translation. */
  focus(column, number) {
    const element = this.element(column + 1, number);
    this.#reachable(element);
    element.focus();
  }

  #head(system) {
    const cell = (content, extra) => make("div", { class: "cell" }, content, make("span", { class: "soft" }, extra));
    const head = make("div", { class: "row head" }, cell(system.source.name, ""));
    for (const each of this.translations) {
      head.append(cell(each.system.target.name, `${each.system.name}: ${reads(each.system)}`));
    }
    return head;
  }

  // Returns a row without sentences; `starts`: it is the first of a paragraph.
  #row(starts, compared) {
    const row = make("div", { class: starts ? "row first" : "row" });
    row.append(make("div", { class: "cell source", lang: this.translations[0].system.source.code, dir: "auto" }));
    for (const { system } of this.translations) {
      const cell = make("div", { class: "cell target", lang: system.target.code, dir: "auto" });
      if (compared) cell.append(make("span", { class: "of soft", lang: "en", dir: "ltr" }, system.name));
      row.append(cell);
    }
    return row;
  }

  // Appends a sentence to the source of a row, and an empty element for each translation.
  #add(row, { number, source, before }) {
    for (const [column, cell] of [...row.children].entries()) {
      const mark = column ? { "data-column": column - 1 } : { "data-label": number + 1 };
      const element = make("span", { class: "s", "data-number": number, ...mark }, column ? "" : source);
      const between = cell.querySelector(".s") ? joiner(cell.lang) : "";
      this.places[column][number] = element;
      cell.append(column ? between : before, element);
    }
  }

  #write(column, number) {
    const { sentences, running } = this.translations[column];
    const { source, target, low } = sentences[number];
    const element = this.element(column + 1, number);
    const missing = target === null;
    element.className = ["s", missing && running && "pending", low && "low"].filter(Boolean).join(" ");
    if (missing) {
      element.removeAttribute("role");
      element.removeAttribute("tabindex");
      element.replaceChildren(
        running ? make("span", { class: "ghost", "aria-hidden": "true", "data-ghost": source }) : make("span", { class: "failed", lang: "en" }, "not translated"),
      );
      return;
    }
    element.setAttribute("role", "button");
    element.tabIndex = element === this.current ? 0 : -1;
    element.replaceChildren(
      make("span", { class: "t" }, target),
      ...(low ? [make("span", { class: "hidden", lang: "en" }, " (unsure)")] : []),
    );
    if (this.translations.length > 1) this.#mark(number);
  }

  // Mark the words in which two complete translations differ.
  #mark(number) {
    const targets = this.translations.map((each) => each.sentences[number]?.target ?? null);
    if (targets.includes(null)) return;
    const marked = differing(targets[0], targets[1], this.translations[0].system.target.code);
    for (const [column, firsts] of marked.entries()) this.#spell(column, number, firsts);
  }

  // Words become elements only when the pointer or a mark needs them.
  #spell(column, number, marked = null) {
    const place = this.element(column + 1, number).querySelector(".t");
    if (!place || (place.dataset.spelled && !marked)) return;
    const text = this.translations[column].sentences[number].target;
    const parts = [];
    let at = 0;
    for (const word of wordsOf(text, this.translations[column].system.target.code)) {
      if (word.first > at) parts.push(text.slice(at, word.first));
      const tag = marked?.has(word.first) ? "mark" : "span";
      parts.push(make(tag, { class: "w", "data-first": word.first, "data-stop": word.stop }, word.text));
      at = word.stop;
    }
    parts.push(text.slice(at));
    place.dataset.spelled = "yes";
    place.replaceChildren(...parts);
  }

  // The Tab key reaches only one sentence; arrow keys move to others.
  #reachable(element) {
    if (this.current?.hasAttribute("tabindex")) this.current.tabIndex = -1;
    if (element.hasAttribute("tabindex")) element.tabIndex = 0;
    this.current = element;
  }

  #pair(number) {
    for (const each of this.place.querySelectorAll(".pair")) each.classList.remove("pair");
    if (number === null) return;
    for (const column of this.places) column[number]?.classList.add("pair");
  }

  #listen() {
    const place = this.place;
    const sentenceOf = (event) => event.target.closest?.(".s");
    place.addEventListener("pointerover", (event) => {
      const element = sentenceOf(event);
      if (!element) return;
      const { column, number } = placeOf(element);
      this.#pair(number);
      if (element.dataset.column && !event.buttons) this.#spell(column, number);
    });
    place.addEventListener("pointerleave", () => this.#pair(null));
    place.addEventListener("focusin", (event) => {
      const element = sentenceOf(event);
      if (!element?.dataset.column || event.target !== element) return;
      this.#pair(placeOf(element).number);
      this.#reachable(element);
    });
    place.addEventListener("focusout", () => this.#pair(null));
    place.addEventListener("click", (event) => this.#clicked(event, sentenceOf(event)));
    place.addEventListener("keydown", (event) => this.#pressed(event));
  }

  #clicked(event, element) {
    if (!element?.hasAttribute("role")) return;
    if (!getSelection().isCollapsed) return; // text is being selected
    const { column, number } = placeOf(element);
    const word = event.target.closest(".w");
    this.#reachable(element);
    if (!word) this.on.sentence(column, number, false);
    else this.on.word(column, number, { first: Number(word.dataset.first), stop: Number(word.dataset.stop) });
  }

  #pressed(event) {
    const element = event.target;
    if (!element.matches?.(".s[role]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { column, number } = placeOf(element);
    const last = this.places[0].length - 1;
    const moves = {
      ArrowDown: [column, Math.min(number + 1, last)],
      ArrowUp: [column, Math.max(number - 1, 0)],
      Home: [column, 0],
      End: [column, last],
      ArrowRight: [Math.min(column + 1, this.translations.length - 1), number],
      ArrowLeft: [Math.max(column - 1, 0), number],
    };
    if (event.key in moves) this.focus(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.on.sentence(column, number, true);
    else return;
    event.preventDefault();
  }
}

/** Describes the context that a system uses. */
export function reads({ view, context_sentences: count }) {
  if (view === "sentence") return "single sentences";
  if (view === "document") return "the whole document";
  return count ? `${counted(count, "sentence")} of context` : "context";
}

const placeOf = ({ dataset }) => ({ column: Number(dataset.column), number: Number(dataset.number) });
