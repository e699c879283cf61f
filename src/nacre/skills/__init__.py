"""Skills: folders with a SKILL.md, of which a model knows the name and the purpose until it uses them."""

from nacre.skills.catalogue import Catalogue
from nacre.skills.document import Skill
from nacre.skills.places import Place, find, usual_places

__all__ = ["Catalogue", "Place", "Skill", "find", "usual_places"]
