// Documents to begin with, by source language: how to translate a word depends on another sentence.

const EXAMPLES = {
  en: [
    "Anna bought a lamp at the market. It was cheap, but it still works.",
    "Our neighbour has written a novel. It will be published in spring.",
    "Did you lock the door? I think I did.",
    "The city is building a new bridge. The old one is closed, and in May it will be pulled down.",
  ].join("\n"),
};

// In the words of the controlled corpus: systems trained on it know no others.
const CONTROLLED = [
  "Clara is drinking tea with the director. There was an old lamp upstairs. It was fragile. Can you help Peter?",
  "Yesterday Anna sang. The evenings were cold. So did Felix.",
  "Peter found a ring. Unfortunately it was small. Later Julia lost it.",
].join("\n");

/** The example for a system, or null where there is none in its source language. */
export const exampleOf = (system) => (system.controlled ? CONTROLLED : EXAMPLES[system.source.code] ?? null);
