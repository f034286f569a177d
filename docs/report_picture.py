"""Draws docs/report.svg, the picture of the README, from the report of a run.

    ./dev run deploy/examples/paced.yaml --preempt-trace MARKET.csv --speed 120 --duration 4m --state-dir DIR --fresh
    docs/report_picture.py DIR/report.html > docs/report.svg

It takes the two figures "Who trained when" and "Loss of the workers, mean" as they are, one above the other.
"""
import re
import sys

FIGURES = ("membership", "loss")
GAP = 34  # pixels above each figure, for its caption


def figure(page, name):
    """(inside, width, height, caption) of the figure whose title has the id NAME-t."""
    drawing = re.search(
        rf'<figcaption>([^<]*)</figcaption><svg role="img" viewBox="0 0 ([\d.]+) ([\d.]+)" '
        rf'aria-labelledby="{name}-t {name}-d">(.*?)</svg>', page, re.S)
    if drawing is None:
        sys.exit(f"report_picture: the page has no figure {name}")
    caption, width, height, inside = drawing.groups()
    return re.sub(r"<title.*?</title>", "", inside), float(width), float(height), caption


def style(page):
    """The colours and shapes of the page that the figures use; text is that of a picture, not of a page."""
    rules = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    kept = [rule for rule in re.findall(r"[^{}]+\{[^{}]*\}|@media[^{]*\{[^{}]*\{[^{}]*\}\}", rules)
            if re.match(r"\s*(:root|@media|\.(grid|mark|line|bar|cross))", rule)]
    return "".join(rule.strip() for rule in kept) + \
        "text{font:12px system-ui,sans-serif;fill:var(--soft)}.caption{font-weight:600;fill:var(--text)}"


def main():
    page = open(sys.argv[1], encoding="utf-8").read()
    heading = re.sub(r"<[^>]+>", "", re.search(r'<p class="soft">(.*?)</p>', page, re.S).group(1))
    body, top, width = [], 0.0, 0.0
    for name in FIGURES:
        inside, wide, high, caption = figure(page, name)
        body.append(f'<g transform="translate(0 {top})"><text class="caption" x="8" y="20">{caption}</text>'
                    f'<g transform="translate(0 {GAP})">{inside}</g></g>')
        top, width = top + high + GAP, max(width, wide)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" role="img" aria-labelledby="t d">'
          f'<title id="t">A job on a recorded spot market</title><desc id="d">{heading}</desc>'
          f'<style>{style(page)}</style><rect width="100%" height="100%" fill="var(--page)"/>{"".join(body)}</svg>')


if __name__ == "__main__":
    main()
