"""What mkdocs does differently for the site of docs/."""
import json
import os
import re

REPOSITORY = "https://github.com/fabric-cni/fabric-cni"
SITE = "https://fabric-cni.github.io/fabric-cni"
VERSION = os.environ.get("SITE_VERSION", "main")


def on_config(config):
    """Each version has a directory of its own."""
    config["site_url"] = f"{SITE}/{VERSION}/"
    config["site_dir"] = os.path.join(config["site_dir"], VERSION)
    if os.path.isdir(os.path.join(config["docs_dir"], "casts")):
        config["extra_javascript"].append("cast.js")
        config["extra_css"].append("cast.css")
    return config


def on_post_page(output, page, config):
    """A recording docs/casts/PAGE.cast stands below the title of PAGE.md; cast.js plays it. Pages in zh/ are Chinese:
    browsers choose the font by it."""
    if page.file.src_path.startswith("zh/"):
        output = output.replace('<html lang="en"', '<html lang="zh-Hans"', 1)
    name = os.path.splitext(page.file.src_path)[0] + ".cast"
    path = os.path.join(config["docs_dir"], "casts", name)
    if not os.path.exists(path):
        return output
    with open(path, encoding="utf-8") as f:
        recording = f.read().replace("<", "\\u003c")  # JSON, within a script
    box = f'<div class="cast"><script type="application/x-asciicast">\n{recording}</script></div>'
    return output.replace("</h1>", "</h1>\n" + box, 1)


def on_post_build(config):
    """The versions that are there, newest first, as the theme's selector reads them, and a page that leads to one."""
    top = os.path.dirname(config["site_dir"])
    releases = []
    for name in os.listdir(top):
        m = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)\.(\d+))?", name)
        if m:
            before = (0, m[4], int(m[5])) if m[4] else (1,)
            releases.append((int(m[1]), int(m[2]), int(m[3]), before, name))
    names = [r[-1] for r in sorted(releases, reverse=True)]
    start = next((name for name in names if "-" not in name), VERSION)
    if os.path.isdir(os.path.join(top, "main")):
        names.append("main")
    with open(os.path.join(top, "versions.json"), "w", encoding="utf-8") as f:
        json.dump([{"version": name, "title": name, "aliases": []} for name in names], f, indent=2)
    with open(os.path.join(top, "index.html"), "w", encoding="utf-8") as f:
        url = f"{start}/index.html"
        f.write('<!doctype html><meta charset="utf-8"><title>fabric-cni</title>'
                f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">fabric-cni {start}</a>\n')


def slug(text, separator):
    """Anchors as GitHub makes them, which the pages link to."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_page_markdown(markdown, page, config, files):
    """Links to files outside of docs/ go to the repository, at the version of the site."""
    here = os.path.dirname(page.file.src_path)

    def link(m):
        path, anchor = m.group(2), m.group(3) or ""
        if "://" in path or path.startswith("#"):
            return m.group(0)
        target = os.path.normpath(os.path.join("docs", here, path))
        if target.startswith("docs/") and (target.endswith(".md") or "images/" in target):
            return m.group(0)
        return f"{m.group(1)}({REPOSITORY}/blob/{VERSION}/{target}{anchor})"

    return re.sub(r"(\]|!\[[^]]*\])\(([^)#\s]+)(#[^)\s]*)?\)", link, markdown)
