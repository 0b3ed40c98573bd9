"""What the pages say to readers of the repository, made right for readers of the site: it has no files beside docs/."""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
FETCHED = re.compile(r"""<(?:script|img|iframe|link[^>]*rel="?stylesheet"?)[^>]*(?:src|href)="?(https?:[^">\s]+)""")
"""What a browser would fetch from elsewhere by itself, when it opens a page."""
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


def on_post_page(output, page, **_):
    """Refuse a page that would ask another machine for anything."""
    if fetched := FETCHED.findall(output):
        raise PluginError(f"{page.file.src_path} fetches {', '.join(fetched)}: a page needs nothing but this site")
    return output
