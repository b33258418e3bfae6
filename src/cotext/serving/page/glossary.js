// The glossary of a language pair, stored in this browser: add and delete entries, import TSV.

import { glossaryOf, keepGlossary } from "./api.js";
import { button, byId, chooser, counted, make, say, showError } from "./dom.js";

/** The glossary for the languages of the selected system; `changed()` is called on every change. */
export class Glossary {
  constructor(changed) {
    this.changed = changed;
    this.entries = [];
    this.system = null;
    byId("glossary-add").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    byId("glossary-clear").addEventListener("click", () => this.#replace([], "All entries are deleted."));
    chooser("glossary-import", "glossary-file", ([file]) => this.#import(file));
    addEventListener("storage", () => {
      if (!this.system) return;
      this.show(this.system); // another tab has changed the entries
      this.changed();
    });
  }

  /** Shows the glossary for the languages of a system. */
  show(system) {
    this.system = system;
    this.entries = glossaryOf(this.pair);
    for (const side of ["source", "target"]) {
      for (const id of [`term-${side}-label`, `terms-${side}`]) byId(id).textContent = system[side].name;
      byId(`term-${side}`).lang = system[side].code;
    }
    byId("glossary-about").textContent = system.takes_terms
      ? "Translations contain these terms. The glossary is stored in this browser and sent to the server with each request."
      : `${system.name} does not support glossaries: entries have no effect unless you choose another system.`;
    this.#render();
  }

  /** Returns the entries that a system supports. */
  for(system) {
    return system.takes_terms && this.system && pairOf(system) === this.pair ? this.entries : [];
  }

  get pair() {
    return pairOf(this.system);
  }

  #add() {
    const fields = [byId("term-source"), byId("term-target")];
    const [source, target] = fields.map((field) => field.value.trim());
    if (!source || !target) return showError("glossary-error", "An entry needs a term and its translation.");
    for (const field of fields) field.value = "";
    this.#replace([...new Map(this.entries).set(source, target)], "Added.");
    return fields[0].focus();
  }

  #replace(entries, message) {
    this.entries = entries;
    keepGlossary(this.pair, entries);
    showError("glossary-error", "");
    this.#render();
    this.changed();
    say(message);
  }

  #render() {
    const { source, target } = this.system;
    byId("no-terms").hidden = this.entries.length > 0;
    byId("terms").hidden = !this.entries.length;
    byId("glossary-clear").disabled = !this.entries.length;
    const rows = this.entries.map((entry, i) => {
      const remove = () => {
        this.#replace(this.entries.filter((_, j) => j !== i), "Deleted.");
        byId("term-source").focus();
      };
      return make(
        "tr",
        {},
        make("td", { lang: source.code, dir: "auto" }, entry[0]),
        make("td", { lang: target.code, dir: "auto" }, entry[1]),
        make("td", {}, button("Delete", remove, { "aria-label": `Delete ${entry[0]}` })),
      );
    });
    byId("term-rows").replaceChildren(...rows);
  }

  // Import a table as for `cotext translate --glossary`; entries with alternatives or forbidden texts are errors.
  async #import(file) {
    const text = await file.text();
    const refuse = (wrong) => showError("glossary-error", `${file.name}${wrong}. Nothing was imported.`);
    if (text.includes("\uFFFD")) return refuse(": not a text in UTF-8; save it as UTF-8");
    const found = new Map();
    for (const [i, line] of text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/).entries()) {
      const [source, target, forbidden] = line.split("\t").map((cell) => cell.trim());
      const isHeader = !found.size && `${source}\t${target}`.toLowerCase() === "source\ttarget";
      if (!line.trim() || line.startsWith("#") || isHeader) continue;
      if (!source || !target) return refuse(`, line ${i + 1}: a line is a source text, a tab, and a target text`);
      if (forbidden || target.includes("|") || (found.get(source) ?? target) !== target) {
        return refuse(`, line ${i + 1}: "${source}" needs exactly one target text, without alternatives and forbidden ones`);
      }
      found.set(source, target);
    }
    const entries = [...new Map([...this.entries, ...found])];
    return this.#replace(entries, `The glossary has ${counted(entries.length, "entry", "entries")}.`);
  }
}

/** Returns the language pair of a system, such as `en-de`. */
export const pairOf = (system) => `${system.source.code}-${system.target.code}`;
