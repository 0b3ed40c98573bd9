"""What the pages say to readers of the repository, made right for readers of the site: it has no files beside docs/."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PICTURES = ("results/speed/all-libraries.png", "results/speed/scaling.png")


def on_files(files, config):
    """Add the pictures of results/ that pages show."""
    for path in PICTURES:
        files.append(File(path, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, **_):
    """Turn links to files of the repository into their names, and pictures of results/ into the copies."""
    markdown = re.sub(r"(!\[[^\]]*\])\(\.\./(results/[^)]*)\)", r"\1(\2)", markdown)
    return re.sub(r"(?<!!)\[([^\]]*)\]\(\.\./([^)]*)\)", r"\1 (`\2`)", markdown)
