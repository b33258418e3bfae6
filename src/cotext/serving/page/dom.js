// Helpers for elements of the page. Data becomes text nodes and attributes, never markup.

/** Returns the element with an id, which must exist. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** Creates an element with attributes; functions become listeners, `false` and `null` are skipped. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Creates a button that does not submit a form. */
export function button(text, click, attributes = {}) {
  return make("button", { type: "button", click, ...attributes }, text);
}

/** Shows an error in an element, or hides it if the message is empty. */
export function showError(id, message) {
  const place = byId(id);
  place.hidden = !message;
  place.textContent = message;
}

/** Announces a message to screen readers. */
export function say(message) {
  byId("status").textContent = message;
}

/** Downloads a blob under a name. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** `1 sentence`, `2 sentences`, `1,200 sentences`. */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** Opens the file dialog of a hidden input by a visible button. */
export function chooser(buttonId, inputId, take) {
  const input = byId(inputId);
  byId(buttonId).addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = "";
    if (files.length) take(files);
  });
}

/** Handles files that are dropped on an element. */
export function dropPlace(element, take) {
  const over = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    element.classList.add("over");
  };
  element.addEventListener("dragenter", over);
  element.addEventListener("dragover", over);
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    element.classList.remove("over");
    const files = [...(event.dataTransfer?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    take(files);
  });
}
