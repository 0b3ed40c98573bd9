"""The pages by their paths."""

from spo.watch.pages.compare import ComparePage
from spo.watch.pages.run import RunPage
from spo.watch.pages.runs import RunsPage
from spo.watch.pages.trust_region import TrustRegionPage
from spo.watch.pages.video import VideoPage

PAGES = {page.path: page for page in (RunsPage, RunPage, TrustRegionPage, ComparePage, VideoPage)}
