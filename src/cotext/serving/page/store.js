// What outlives a reload: the text, the systems and the key until the tab is closed, glossaries in this browser.

const PREFIX = "cotext.";

function reading(store, name, otherwise) {
  try {
    const found = store.getItem(PREFIX + name);
    return found === null ? otherwise : JSON.parse(found);
  } catch {
    return otherwise; // a browser that keeps nothing, or something that is not ours
  }
}

function writing(store, name, value) {
  try {
    if (value === null) store.removeItem(PREFIX + name);
    else store.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or forbidden: the page works, and forgets.
  }
}

/** Something of this tab. */
export const recall = (name, otherwise = null) => reading(sessionStorage, name, otherwise);

/** Keep something until this tab is closed; null forgets it. */
export const remember = (name, value) => writing(sessionStorage, name, value);

/** The glossary of a language pair, as pairs of texts. */
export function glossaryOf(pair) {
  const found = reading(localStorage, `glossary.${pair}`, []);
  const isEntry = (each) => Array.isArray(each) && each.length === 2 && each.every((t) => typeof t === "string");
  return Array.isArray(found) ? found.filter(isEntry) : [];
}

/** Keep the glossary of a language pair in this browser. */
export const keepGlossary = (pair, entries) => writing(localStorage, `glossary.${pair}`, entries);
