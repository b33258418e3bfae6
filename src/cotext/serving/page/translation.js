// A document translated by one system: its sentences, edits, and their history.

import * as api from "./api.js";
import { joiner } from "./words.js";

/**
 * Calls `listener.started(translation)` and `listener.sentence(translation, number)`. A sentence has `target` (null
 * until translated), `confidence`, `low`, `edited`, `changed`, and `stale` (the old target while it is translated).
 */
export class Translation {
  constructor(system, text, glossary, listener) {
    Object.assign(this, { system, source: text, glossary, listener });
    this.sources = []; // from the server: {number, paragraph, source, before}
    this.sentences = [];
    this.history = [];
    this.whole = null; // the complete translation from the server
    this.seconds = null;
    this.arrived = 0;
    this.running = null;
  }

  /** Translates the whole document; throws ApiError; resolves to false if cancelled. */
  start() {
    return this.#run({}, new Set());
  }

  /** Replaces a sentence, and translates the following ones again. */
  edit(number, target) {
    this.#keep();
    this.sentences[number] = { ...this.sentences[number], target, edited: true, changed: false, low: false, confidence: null };
    const given = {};
    for (const [j, each] of this.sentences.entries()) {
      if ((j <= number || each.edited) && each.target !== null) given[j] = each.target;
    }
    return this.#run(given, new Set(Object.keys(given).map(Number)));
  }

  /** Undoes the last edit. */
  undo() {
    Object.assign(this, this.history.pop());
    this.arrived = this.sentences.length;
  }

  /** Cancels the translation; finished sentences are kept. */
  cancel() {
    this.running?.abort();
  }

  /** The translation as text, one paragraph per line; missing sentences are skipped. */
  get text() {
    if (this.whole !== null) return this.whole;
    const lines = new Map();
    const between = joiner(this.system.target.code);
    for (const { number, paragraph } of this.sources) {
      const target = this.sentences[number].target ?? "";
      lines.set(paragraph, lines.has(paragraph) ? lines.get(paragraph) + between + target : target);
    }
    const count = this.source.split(/\r\n|\r|\n/).length;
    return Array.from({ length: count }, (_, i) => lines.get(i) ?? "").join("\n");
  }

  /** Source and target of all translated sentences. */
  get pairs() {
    return this.sources
      .map(({ number, source }) => [source, this.sentences[number].target])
      .filter(([, target]) => target !== null);
  }

  #keep() {
    this.history.push({ whole: this.whole, sentences: this.sentences.map((each) => ({ ...each })) });
  }

  async #run(given, fixed) {
    const before = this.sentences.map((each) => each.target);
    const running = new AbortController();
    this.running = running;
    this.whole = null;
    this.arrived = 0;
    const content = { system: this.system.name, text: this.source, glossary: this.glossary, given, fast: false };
    try {
      for await (const { event, data } of api.translate(content, running.signal)) {
        if (event === "start") this.#started(data, fixed);
        else if (event === "sentence") this.#sentence(data, before, fixed);
        else if (event === "done") return this.#done(data, before, fixed);
        else if (event === "error") throw new api.ApiError(500, data.message);
      }
      if (running.signal.aborted) return false;
      throw new api.ApiError(0, "The connection broke before the translation was complete. Translate again.");
    } catch (error) {
      if (running.signal.aborted) return false;
      throw error;
    } finally {
      if (this.running === running) this.running = null;
    }
  }

  #started(data, fixed) {
    this.sources = data.sentences;
    const empty = { target: null, confidence: null, low: false, edited: false, changed: false };
    const known = this.sentences;
    this.sentences = data.sentences.map(({ number }) =>
      fixed.has(number) ? known[number] : { ...empty, stale: known[number]?.target ?? null },
    );
    this.listener.started(this);
  }

  #sentence({ number, target }, before, fixed) {
    this.arrived++;
    if (!fixed.has(number)) this.#set(number, target, before);
    this.listener.sentence(this, number);
  }

  #set(number, target, before) {
    const changed = before.length > 0 && before[number] !== target;
    Object.assign(this.sentences[number], { target, changed, stale: null });
  }

  #done(data, before, fixed) {
    for (const { number, target, confidence, low } of data.sentences) {
      if (!fixed.has(number)) {
        this.#set(number, target, before);
        Object.assign(this.sentences[number], { confidence, low });
      } else if (!this.sentences[number].edited && this.sentences[number].confidence === null) {
        Object.assign(this.sentences[number], { confidence, low });
      }
    }
    this.whole = data.text;
    this.seconds = data.seconds;
    this.arrived = data.sentences.length;
    return true;
  }
}
