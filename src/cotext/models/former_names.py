"""Names of weights as runs of 0.1.0's previews wrote them, in today's words.

Weights are renamed when they are loaded. To be removed with the release after 0.1.0.
"""

import re

RULES = (
    (r"^encoder\.\d+\.(layer|gate|norm)\.", r"source_document.\1."),
    (r"(^|\.)attention\.place\.", r"\1attention.score.distance."),
    (r"(^|\.)attention\.place_bias$", r"\1attention.score.distance_bias"),
    (r"(^|\.)attention\.content_bias$", r"\1attention.score.content_bias"),
    (r"(^|\.)(attention|source_document\.layer)\.(of_keys|of_values)$", r"\1\2.score.\3"),
    (r"^(source|target)_(context|rows)\.", r"batch_context.\1_\2."),
    (r"^latent\.foreteller\.", r"latent.code_predictor."),
)


def renamed(name: str) -> str:
    """Today's name of a weight; one that is today's comes back as it is."""
    for pattern, replacement in RULES:
        name = re.sub(pattern, replacement, name)
    return name
