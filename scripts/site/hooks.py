"""What mkdocs does differently for the site of docs/."""
import os
import re

REPOSITORY = "https://github.com/fabric-cni/fabric-cni"


def slug(text, separator):
    """Anchors as GitHub makes them, which the pages link to."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_page_markdown(markdown, page, config, files):
    """Links to files outside of docs/ go to the repository, at the version of the site."""
    version = os.environ.get("SITE_VERSION", "main")
    here = os.path.dirname(page.file.src_path)

    def link(m):
        path, anchor = m.group(2), m.group(3) or ""
        if "://" in path or path.startswith("#"):
            return m.group(0)
        target = os.path.normpath(os.path.join("docs", here, path))
        if target.startswith("docs/") and (target.endswith(".md") or "images/" in target):
            return m.group(0)
        return f"{m.group(1)}({REPOSITORY}/blob/{version}/{target}{anchor})"

    return re.sub(r"(\]|!\[[^]]*\])\(([^)#\s]+)(#[^)\s]*)?\)", link, markdown)
