from spo.watch.page import Page
class ComparePage(Page):
    title, path = "Compare", "/compare"
    def build(self): return []
    def refresh(self): pass
