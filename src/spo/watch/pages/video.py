"""The newest recording that lies in a run directory."""

import math
import time
from urllib.parse import urlencode

from bokeh.models import UIElement

from spo.experiments.report.markup import Html, element, join
from spo.watch.files import Place, UnreadableFileError, read_json
from spo.watch.glance import Glance
from spo.watch.page import Page, badge, chip, link_to
from spo.watch.tables import to_number
from spo.watch.videos import Video, find_videos
from spo.watch.words import show_number


class VideoPage(Page):
    """What a run's policy looks like."""

    title, path = "Video", "/video"

    def build(self) -> list[UIElement]:
        run = self.find_run()
        self.key = run.key if run else self.argument("run")
        self.words = self.make_div("words")
        return [self.words]

    def refresh(self) -> None:
        run, place = self.catalogue.glances.get(self.key), self.catalogue.place(self.key)
        if run is None or place is None:
            self.show_notes(["There is no such run here."])
            return
        videos = find_videos(place)
        self.set_text(self.words, join([_draw_heading(run), _draw_video(run, place, videos)]))


def _draw_heading(run: Glance) -> Html:
    above = [badge(run.state), " ", chip(run.objective), f" seed {run.seed} ", link_to("/run", "curves", run=run.key)]
    return element("section", element("h1", run.task), element("p", *above, class_="above"), class_="facts")


def _draw_video(run: Glance, place: Place, videos: list[Video]) -> Html:
    if not videos:
        command = f"spo eval {place.path} --video {place.path / 'evaluation.mp4'}"
        return element("p", "There is no recording in this run’s directory. ", element("code", command), " makes one.")
    newest = videos[0]
    # The time in the address makes the browser load a recording that was made anew.
    source = "/video/file?" + urlencode({"run": run.key, "written": newest.written})
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(newest.written))
    caption = f"{newest.name}, {newest.size / 1e6:.1f} MB, {made}. {_evaluation(place)}"
    return join([element("video", src=source, controls="", loop="", playsinline="", preload="metadata"),
                 element("p", caption, class_="bar")])  # fmt: skip


def _evaluation(place: Place) -> str:
    """Say what the last evaluation came to."""
    try:
        values = read_json(place, "evaluation.json")
    except UnreadableFileError:
        return ""
    mean, std = to_number(values.get("return_mean")), to_number(values.get("return_std"))
    return f"Last evaluation: return {show_number(mean)} ± {show_number(std)}." if math.isfinite(mean) else ""
