// Storage: text, systems and key until the tab is closed; glossaries permanently.

const PREFIX = "cotext.";

function reading(store, name, otherwise) {
  try {
    const found = store.getItem(PREFIX + name);
    return found === null ? otherwise : JSON.parse(found);
  } catch {
    return otherwise; // storage is disabled, or the value is invalid
  }
}

function writing(store, name, value) {
  try {
    if (value === null) store.removeItem(PREFIX + name);
    else store.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or disabled.
  }
}

/** Returns a value stored for this tab. */
export const recall = (name, otherwise = null) => reading(sessionStorage, name, otherwise);

/** Stores a value until this tab is closed; null deletes it. */
export const remember = (name, value) => writing(sessionStorage, name, value);

/** Returns the glossary of a language pair, as pairs of texts. */
export const glossaryOf = (pair) => reading(localStorage, `glossary.${pair}`, []);

/** Stores the glossary of a language pair in this browser. */
export const keepGlossary = (pair, entries) => writing(localStorage, `glossary.${pair}`, entries);
