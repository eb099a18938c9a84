"""Pictures with their numbers and their files: markup that the browser's ``coft.pictures`` fills and works.

A picture is known by its name. Wherever its tools stand, the numbers go to the element that :func:`numbers` makes, and
an image is drawn anew from what the picture shows.
"""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon

AUDIT_PICTURES = (
    (
        "strip",
        "Sensitivity along the chain",
        "darker: stronger; orange from 0.50 on; ▲ likelier with the attribute visible, ▼ masking raises it",
    ),
    (
        "scatter",
        "Candidates of the selected token",
        "on the diagonal masking changes nothing; what lies above both threshold lines passes",
    ),
    (
        "divergence",
        "How far fusion stays from the masked reading",
        "bars: KL of fused from masked; line: TV on the certified set; dashed: its bound",
    ),
    (
        "margin",
        "Distance to the threshold",
        "above zero: the token passes its threshold; under zero, hatched: it does not",
    ),
)
"""The audit page's pictures: name, title, what the marks mean."""


def tools(name: str, title: str) -> str:
    """Two buttons of a picture: its numbers as a table, and its file."""
    return (
        f'<span class="pictools" data-picture="{name}">'
        f'<button type="button" class="link" data-do="picture-numbers" aria-expanded="false"'
        f' aria-label="Numbers: {title}">numbers</button>'
        f'<button type="button" class="link" data-do="picture-image" aria-haspopup="menu" aria-expanded="false"'
        f' aria-controls="menu-image" aria-label="Image: {title}">image</button></span>'
    )


def numbers(name: str) -> str:
    """The place of a picture's numbers."""
    return f'<div class="pictable" data-table="{name}" hidden></div>'


def pictures() -> None:
    """Place the audit page's folded section of pictures, and the menu that all its images share."""
    body = "".join(_picture(*item) for item in AUDIT_PICTURES)
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-pictures"><details class="pictures" hidden>
        <summary>{icon("chev", "chev")}<h2 id="h-pictures">Pictures</h2>
          <span class="hint">of the chain and of the selected token</span></summary>{body}</details>
        <p class="vh said" role="status"></p>{_menu()}</section>""",
        js_on_load="coft.pictures.mount(element)",
        apply_default_css=False,
        elem_id="pictures",
        elem_classes=["coft"],
    )


def _picture(name: str, title: str, hint: str) -> str:
    return (
        f'<figure class="picture" data-figure="{name}"><figcaption class="figcaption"><h3>{title}</h3>'
        f'{tools(name, title)}<span class="hint">{hint}</span></figcaption>'
        f'<div class="plot" data-plot="{name}"></div><p class="hint none" hidden></p>{numbers(name)}</figure>'
    )


def _menu() -> str:
    items = "".join(
        f'<button type="button" role="menuitem" tabindex="-1" data-format="{kind}"><span class="title">{title}</span>'
        f'<span class="hint">{why}</span></button>'
        for kind, title, why in (
            ("png", "PNG", "For slides and text: dots, at twice the size."),
            ("svg", "SVG", "For print and editing: lines, at any size."),
        )
    )
    return f'<div class="menu" id="menu-image" popover role="menu" aria-label="Image as">{items}</div>'
