"""Skills: folders with a SKILL.md, of which a model knows the name and the purpose until it uses them."""

from nacre.skills.catalogue import Catalogue
from nacre.skills.document import Skill
from nacre.skills.permits import permits
from nacre.skills.places import Found, Place, find, usual_places

__all__ = ["Catalogue", "Found", "Place", "Skill", "find", "permits", "usual_places"]
