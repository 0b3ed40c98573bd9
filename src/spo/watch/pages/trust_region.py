from spo.watch.page import Page
class TrustRegionPage(Page):
    title, path = "Trust region", "/trust-region"
    def build(self): return []
    def refresh(self): pass
