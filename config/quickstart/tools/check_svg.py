"""check_svg (an observer's probe): is there a well-formed SVG chart, and what does it show?

A chart that is absent or broken is an observation, so it exits 0 and says so.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

import xml.etree.ElementTree

SVG_BYTES_MAX = 4 * 1024 * 1024
SVG = "{http://www.w3.org/2000/svg}"


def check_svg(path):
    if not os.path.lexists(path):
        return {"well_formed": False, "missing": True}
    if not os.path.isfile(path):
        return broken("not a regular file")
    with open(path, "rb") as file:
        content = file.read(SVG_BYTES_MAX + 1)
    if len(content) > SVG_BYTES_MAX:
        return broken(f"larger than {SVG_BYTES_MAX} bytes")
    return inspect(content)


class WithoutDoctype(xml.etree.ElementTree.TreeBuilder):
    """A DOCTYPE can define entities that explode; a chart needs none."""

    def doctype(self, name, public_id, system_id):
        raise ValueError("a DOCTYPE is not accepted")


def inspect(content):
    parser = xml.etree.ElementTree.XMLParser(target=WithoutDoctype())
    try:
        root = xml.etree.ElementTree.fromstring(content, parser)
    except (xml.etree.ElementTree.ParseError, ValueError, LookupError) as error:
        return broken(f"not acceptable XML: {error}")
    if root.tag != f"{SVG}svg":
        return broken("the root element is not svg")
    return {
        "well_formed": True,
        "bars": sum(rect.get("class") == "bar" for rect in root.iter(f"{SVG}rect")),
        "width": pixels(root.get("width")),
        "height": pixels(root.get("height")),
    }


def pixels(value):
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 10 else None


def broken(reason):
    return {"well_formed": False, "missing": False, "reason": reason}


if __name__ == "__main__":
    toolkit.run(check_svg, {"path": toolkit.path})
