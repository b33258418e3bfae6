// A document translated by one system: its sentences as they arrive, and its text.

import * as api from "./api.js";

/**
 * Calls `listener.started(translation)` and `listener.sentence(translation, number)`. A sentence has `target` (null
 * until translated), `confidence` and `low`.
 */
export class Translation {
  constructor(system, text, glossary, listener) {
    Object.assign(this, { system, source: text, glossary, listener });
    this.sources = []; // from the server: {number, paragraph, source, before}
    this.sentences = [];
    this.text = null; // the complete translation, one paragraph per line
    this.seconds = null;
    this.arrived = 0;
    this.running = null;
  }

  /** Translates the document; throws ApiError; resolves to false if cancelled. */
  async start() {
    const running = new AbortController();
    this.running = running;
    const content = { system: this.system.name, text: this.source, glossary: this.glossary };
    try {
      for await (const { event, data } of api.translate(content, running.signal)) {
        if (event === "start") this.#started(data);
        else if (event === "sentence") this.#sentence(data);
        else if (event === "done") return this.#done(data);
        else if (event === "error") throw new api.ApiError(500, data.message);
      }
      if (running.signal.aborted) return false;
      throw new api.ApiError(0, "The connection broke before the translation was complete. Translate again.");
    } catch (error) {
      if (running.signal.aborted) return false;
      throw error;
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

  #started(data) {
    this.sources = data.sentences;
    this.sentences = data.sentences.map(() => ({ target: null, confidence: null, low: false }));
    this.listener.started(this);
  }

  #sentence({ number, target }) {
    this.arrived++;
    this.sentences[number].target = target;
    this.listener.sentence(this, number);
  }

  #done(data) {
    for (const { number, target, confidence, low } of data.sentences) {
      Object.assign(this.sentences[number], { target, confidence, low });
    }
    this.text = data.text;
    this.seconds = data.seconds;
    this.arrived = data.sentences.length;
    return true;
  }
}
