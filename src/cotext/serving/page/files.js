// Translation of files: upload, progress, download, cancellation.

import * as api from "./api.js";
import { button, byId, chooser, counted, dropPlace, make, save, say, showError } from "./dom.js";

const PAUSE = 1000; // milliseconds between two requests for the status
const UNDER_WAY = new Set(["queued", "translating"]);

/** The files of this client; `chosen()` returns system and glossary, `failed(error)` is called with errors. */
export class Files {
  constructor(chosen, failed) {
    Object.assign(this, { chosen, failed, timer: null });
    this.rows = new Map(); // elements of a job, by its id
    chooser("choose", "upload", (files) => this.submit(files));
    dropPlace(byId("drop"), (files) => this.submit(files));
  }

  /** Shows which files the server supports; it rejects others. */
  accept({ file_suffixes: suffixes, limits }) {
    byId("upload").accept = suffixes.join(",");
    const megabytes = (limits.file_bytes / 1024 / 1024).toFixed(1);
    byId("suffixes").textContent = `Supported: ${suffixes.join(" ")}, up to ${megabytes} MB.`;
  }

  /** Uploads files, one after the other. */
  async submit(files) {
    showError("files-error", "");
    const { system, glossary } = this.chosen();
    const wrong = []; // one line per rejected file
    for (const file of files) {
      try {
        await api.submit(file, system.name, glossary);
        say(`${file.name} is uploaded.`);
      } catch (error) {
        wrong.push(error.message.startsWith(`${file.name}:`) ? error.message : `${file.name}: ${error.message}`);
        showError("files-error", wrong.join("\n"));
        this.failed(error);
      }
    }
    await this.look();
  }

  /** Updates the status of files, repeatedly while one is in progress. */
  async look() {
    clearTimeout(this.timer);
    let found;
    try {
      found = await api.jobs();
    } catch (error) {
      showError("files-error", error.message);
      this.failed(error);
      return;
    }
    this.#render(found);
    if (found.some((job) => UNDER_WAY.has(job.state))) this.timer = setTimeout(() => this.look(), PAUSE);
  }

  #render(found) {
    byId("no-jobs").hidden = found.length > 0;
    const ids = new Set(found.map((job) => job.id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    const place = byId("jobs");
    for (const [i, job] of found.entries()) {
      const row = this.rows.get(job.id) ?? this.#row(job);
      if (place.children[i] !== row.element) place.insertBefore(row.element, place.children[i] ?? null);
      if (row.shown === JSON.stringify(job)) continue;
      if (row.state && row.state !== job.state && !UNDER_WAY.has(job.state)) say(`${job.file_name}: ${words(job)}`);
      Object.assign(row, { shown: JSON.stringify(job), state: job.state });
      this.#update(row, job);
    }
  }

  #row(job) {
    const download = () => this.#try(async () => save(await api.result(job.id), job.file_name));
    const row = {
      element: make("li", { class: "card job" }),
      words: make("span", { class: "soft" }),
      progress: make("progress", { "aria-label": `Progress of ${job.file_name}` }),
      download: button("Download", download, { class: "main", "aria-label": `Download ${job.file_name}` }),
      remove: button("Delete", () => this.#forget(job)),
      remarks: make("details", { class: "soft small" }),
    };
    row.element.append(
      make("span", { class: "name", dir: "auto" }, job.file_name),
      make("div", { class: "line end" }, row.download, row.remove),
      row.words,
      row.progress,
      row.remarks,
    );
    this.rows.set(job.id, row);
    return row;
  }

  #update(row, job) {
    const running = UNDER_WAY.has(job.state);
    row.words.textContent = words(job);
    row.words.className = job.state === "error" ? "error" : "soft";
    row.progress.hidden = !running;
    if (job.sentences) Object.assign(row.progress, { max: job.sentences, value: job.sentences_done });
    row.download.hidden = job.state !== "done";
    row.remarks.hidden = !job.messages.length;
    row.remarks.replaceChildren(
      make("summary", {}, counted(job.messages.length, "message")),
      ...job.messages.map((message) => make("p", {}, message)),
    );
    row.remove.textContent = running ? "Cancel" : "Delete";
    row.remove.setAttribute("aria-label", `${row.remove.textContent} ${job.file_name}`);
  }

  async #forget(job) {
    await this.#try(() => api.forget(job.id));
    byId("choose").focus();
    await this.look();
  }

  async #try(call) {
    showError("files-error", "");
    try {
      await call();
    } catch (error) {
      showError("files-error", error.message);
      this.failed(error);
    }
  }
}

function words({ state, sentences, sentences_done: done, seconds_remaining: seconds, message }) {
  if (state === "queued") return "waiting";
  if (state === "translating") {
    const left = seconds ? `, about ${Math.max(1, Math.round(seconds))} s left` : "";
    return sentences ? `${done.toLocaleString("en")} of ${counted(sentences, "sentence")}${left}` : "being read";
  }
  if (state === "done") return sentences ? `translated, ${counted(sentences, "sentence")}` : "translated";
  return message || "could not be translated";
}
