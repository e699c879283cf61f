"""Skills: folders with a SKILL.md, of which a model knows the name and the purpose until it uses them."""

from nacre.skills.catalogue import Catalogue
from nacre.skills.discovery import Found, Place, find, usual_places
from nacre.skills.permits import permits
from nacre.skills.skill_file import Skill

__all__ = ["Catalogue", "Found", "Place", "Skill", "find", "permits", "usual_places"]
