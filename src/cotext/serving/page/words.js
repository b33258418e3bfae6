// Words of a text by the rules of its language, and differences of two texts.

const segmenters = new Map();

/** Returns the words of a text without punctuation: `{text, first, stop}`. */
export function wordsOf(text, language) {
  const found = [];
  if (!segmenters.has(language)) segmenters.set(language, new Intl.Segmenter(language, { granularity: "word" }));
  for (const { segment, index, isWordLike } of segmenters.get(language).segment(text)) {
    if (isWordLike) found.push({ text: segment, first: index, stop: index + segment.length });
  }
  return found;
}

/** Returns the words of each text that are not in a longest common subsequence: two sets of first characters. */
export function differing(one, other, language) {
  const a = wordsOf(one, language);
  const b = wordsOf(other, language);
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i][j] =
        a[i].text === b[j].text ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  let [i, j] = [0, 0];
  const marked = [new Set(), new Set()];
  while (i < a.length || j < b.length) {
    if (a[i]?.text === b[j]?.text) [i, j] = [i + 1, j + 1];
    else if (j === b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1])) marked[0].add(a[i++].first);
    else marked[1].add(b[j++].first);
  }
  return marked;
}

/** Convert between code points (server) and UTF-16 code units (browser). */
export const inText = (text, points) => Array.from(text).slice(0, points).join("").length;
export const inPoints = (text, place) => Array.from(text.slice(0, place)).length;

const WITHOUT_SPACES = new Set(["zh", "ja", "th", "lo", "km", "my", "bo"]);

/** Returns the text between two sentences of a language. */
export const joiner = (language) => (WITHOUT_SPACES.has(language.split(/[-_]/)[0]) ? "" : " ");
