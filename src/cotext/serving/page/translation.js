// A document translated by one system: its sentences as they arrive, and its text.

import * as api from "./api.js";

/**
 * Calls `listener.started(translation)` and `listener.sentence(translation, number)`. A sentence has `number`,
 * `paragraph`, `source`, `before`, `target` (null until translated), `confidence` and `low`.
 */
export class Translation {
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
