// Documents to begin with, by language pair: what to choose stands in another sentence.

const EXAMPLES = {
  "en-de": [
    "Clara is drinking tea with the director. There was an old lamp upstairs. It was fragile. Can you help Peter?",
    "Yesterday Anna sang. The evenings were cold. So did Felix.",
    "Peter found a ring. Unfortunately it was small. Later Julia lost it.",
  ].join("\n"),
};

/** The example of a language pair, such as `en-de`, or null. */
export const exampleOf = (pair) => EXAMPLES[pair] ?? null;
