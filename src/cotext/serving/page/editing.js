// A sentence of the translation edited where it stands.

import { button, make } from "./dom.js";

/** Turn a sentence into a field; `keep(text)` when it is kept, `leave()` when it is left as it was. */
export function editInPlace(element, text, language, keep, leave) {
  const field = make("textarea", { "aria-label": "Translation of this sentence", dir: "auto", lang: language, rows: "1" });
  field.value = text;
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const done = () => {
    const written = field.value.replace(/\s*\n\s*/g, " ").trim();
    if (written && written !== text) keep(written);
    else leave();
  };
  const form = make(
    "form",
    {
      class: "edit",
      submit: (event) => {
        event.preventDefault();
        done();
      },
      keydown: (event) => {
        if (event.key === "Escape") leave();
        else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) done();
        else return;
        event.preventDefault();
        event.stopPropagation();
      },
    },
    field,
    make("span", { class: "line" }, make("button", { type: "submit", class: "main" }, "Keep"), button("Leave as it was", leave)),
  );
  // Keys of the buttons are their own.
  for (const each of form.querySelectorAll("button")) {
    each.addEventListener("keydown", (event) => event.key === "Enter" && event.stopPropagation());
  }
  for (const name of ["role", "tabindex"]) element.removeAttribute(name);
  element.replaceChildren(form);
  field.addEventListener("input", fit);
  fit();
  field.focus();
}
