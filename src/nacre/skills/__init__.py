"""Skills: folders with a SKILL.md, of which a model knows the name and the purpose until it uses them."""

from nacre.skills.catalogue import Catalogue, FoundSkill, Place, find, usual_places
from nacre.skills.skill_file import Skill, permits

__all__ = ["Catalogue", "FoundSkill", "Place", "Skill", "find", "permits", "usual_places"]
