"""README files of folders for Hugging Face: what a model needs beside what its class says."""

import json
from collections.abc import Mapping, Sequence


def readme_of_class(
    kind: str, signature: str, max_tokens: int, separators: Mapping[str, int], length_penalty: str
) -> str:
    """Of a model of a class of Hugging Face.

    `separators`: names and rows of the symbols between the sentences of its rows, of at most `max_tokens`
    tokens; none where these are single sentences. `length_penalty`: that of the run, where
    transformers has none of its form.
    """
    lines = [f"A {kind}, exported from a run of Cotext.", "", f"signature: {signature}", ""]
    if separators:
        names = ", ".join(f"`{name}` (row {row})" for name, row in separators.items())
        lines.append(
            f"Its rows are documents or windows of up to {max_tokens} tokens, whose sentences are set apart "
            f"by {names}. The tokenizer does not put these; `cotext translate` does, and sees to it that as "
            "many sentences come out as went in."
        )
    else:
        lines.append("It translates single sentences.")
    if length_penalty:
        lines += [
            "",
            f"The run searches with the length penalty {length_penalty}. transformers has no penalty of this "
            "form, so generation_config.json gives none.",
        ]
    return "\n".join(lines) + "\n"


def readme_of_run(name: str, found: Sequence[str]) -> str:
    """Of a run that no class of Hugging Face expresses, because of the settings `found`."""
    listed = "\n".join(f"- {each}" for each in found)
    return f"""# {name}

A run of Cotext. It is no model of the classes of Hugging Face (MarianMT, M2M-100, mBART), because of:

{listed}

The weights are in `model.safetensors`, named as Cotext names them, with the whole configuration in the head
of the file and in `config.yaml`. It needs Cotext to run:

```python
import cotext
translator = cotext.load({json.dumps(name)})
print(translator.translate(["The first sentence.", "The second sentence."]))
```
"""
