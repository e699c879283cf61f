"""Pairs of facts that a model gave one subject: those that both hold, and those of which the second replaces the first.

Each is a subject, the first fact and the second.
"""

from __future__ import annotations

BOTH_HOLD = [
    ("pets", "The user has a dog named Rex.", "The user has a cat named Mia."),
    ("allergy", "The user is allergic to peanuts.", "The user is allergic to penicillin."),
    ("instructions", "Always answer in German.", "Always show prices with tax."),
    ("instructions", "Never use emojis.", "Never apologise."),
    ("languages", "The user speaks Portuguese.", "The user speaks Dutch."),
    ("hobbies", "The user likes climbing.", "The user likes chess."),
    ("sister", "The user's sister Ana runs a bakery.", "The user's sister Eva studies law."),
    ("user", "The user lives in Lisbon.", "The user works at a hospital."),
    ("job", "The user is a software engineer.", "The user works for Acme."),
    ("database", "The database is PostgreSQL 16.", "The database listens on port 5433."),
    ("tools", "The project uses pytest.", "The project uses ruff."),
    ("phone", "The user's work phone number is 555-0100.", "The user's private phone number is 555-0199."),
    ("birthday", "The user's birthday is on 3 May.", "Tom's birthday is on 9 June."),
    ("answers", "The user prefers short answers.", "The user prefers answers with sources."),
    ("music", "The user plays the violin.", "The user enjoys jazz."),
    ("medication", "The user takes metformin every morning.", "The user takes aspirin every evening."),
    ("Haustier", "Der Nutzer hat einen Hund.", "Der Nutzer hat auch eine Katze."),
    ("allergies", "L'utilisateur est allergique aux noix.", "L'utilisateur est allergique au gluten."),
    ("idiomas", "La usuaria habla francés.", "La usuaria habla catalán."),
    ("Anweisung", "Immer auf Deutsch antworten.", "Niemals Emojis verwenden."),
]

UPDATES = [
    ("diet", "The user is a vegetarian.", "The user eats meat."),
    ("marital status", "The user is single.", "The user is married."),
    ("home city", "The user lives in Paris.", "The user lives in Berlin."),
    ("city", "The user lives in Berlin.", "The user has moved to Hamburg."),
    ("employer", "The user works at Google.", "The user works at Mozilla."),
    ("job", "The user is a lawyer.", "The user is a baker now."),
    ("phone number", "The user's phone number is 555-0100.", "The user's phone number is 555-0142."),
    ("indentation", "The user prefers tabs.", "The user prefers spaces."),
    ("editor", "The user uses Emacs.", "The user uses Neovim."),
    ("answer language", "Always answer in German.", "Always answer in French."),
    ("emojis", "Never use emojis.", "Use emojis in answers."),
    ("answers", "The user prefers short answers.", "The user prefers detailed answers."),
    ("dog", "The user has a dog named Rex.", "The user's dog Rex has died."),
    ("meeting", "The weekly meeting is on Tuesday at 10.", "The weekly meeting is on Thursday at 10."),
    ("rent", "The rent is 900 euros.", "The rent is 950 euros."),
    ("alcohol", "The user drinks wine.", "The user does not drink wine anymore."),
    ("Wohnort", "Der Nutzer wohnt in München.", "Der Nutzer ist nach Wien gezogen."),
    ("Familienstand", "Die Nutzerin ist ledig.", "Die Nutzerin ist verheiratet."),
    ("domicile", "L'utilisateur habite à Lyon.", "L'utilisateur habite maintenant à Lille."),
    ("trabajo", "El usuario trabaja en Telefónica.", "El usuario trabaja en Iberia."),
]

# Written before the rule, and looked at when it was done.
OTHERS_BOTH_HOLD = [
    ("pets", "The user has a parrot called Coco.", "The user has two rabbits."),
    ("allergies", "The user is allergic to shellfish.", "The user is allergic to bee stings."),
    ("standing instruction", "Always sign mails with 'Best, Jo'.", "Never schedule meetings before ten."),
    ("children", "The user's son Leo is four years old.", "The user's daughter Nora is seven years old."),
    ("instrument", "The user plays the cello.", "The user plays the drums."),
    ("work", "The user works at Siemens.", "The user leads a team of six people."),
    ("car", "The user drives a red Skoda.", "The user's car is due for inspection in May."),
    ("books", "The user loves science fiction.", "The user is reading Middlemarch."),
    ("server", "The staging server runs Debian 12.", "The staging server is in Frankfurt."),
    ("answers", "Answer in short sentences.", "Use metric units in answers."),
    ("Anna", "Anna is the user's boss.", "Anna lives in Oslo."),
    ("family", "The user's brother lives in Madrid.", "The user's mother lives in Porto."),
    ("food", "The user hates olives.", "The user loves ramen."),
    ("Sprachen", "Die Nutzerin spricht Polnisch.", "Die Nutzerin spricht Türkisch."),
    ("Haustiere", "Der Nutzer hat einen Kater namens Felix.", "Der Nutzer hat ein Aquarium."),
    ("loisirs", "L'utilisateur fait du vélo.", "L'utilisateur joue aux échecs."),
    ("alergia", "El usuario es alérgico al polen.", "El usuario es alérgico a la penicilina."),
    ("trip", "The user flies to Rome on Friday.", "The user booked a hotel in Trastevere."),
    ("health", "The user takes ibuprofen for migraines.", "The user has asthma."),
    ("project", "The project uses Redis for caching.", "The project uses Celery for background jobs."),
]

OTHER_UPDATES = [
    ("home", "The user lives in Madrid.", "The user moved to Valencia."),
    ("relationship", "The user is engaged to Kim.", "The user is married to Kim."),
    ("job", "The user works as a nurse.", "The user works as a teacher."),
    ("email", "The user's email is jo@old.example.", "The user's email is jo@new.example."),
    ("indentation", "The user prefers four spaces.", "The user prefers two spaces."),
    ("diet", "The user is vegan.", "The user eats fish and cheese now."),
    ("smoking", "The user smokes.", "The user quit smoking."),
    ("deadline", "The deadline is 3 March.", "The deadline is 10 March."),
    ("editor", "The user uses Vim.", "The user switched to Helix."),
    ("reply language", "Always reply in English.", "Always reply in Spanish."),
    ("car", "The user drives a Volvo.", "The user sold the Volvo."),
    ("age", "The user is 29 years old.", "The user is 30 years old."),
    ("coffee", "The user drinks coffee with milk.", "The user no longer drinks coffee."),
    ("boss", "The user's boss is Mr. Stone.", "The user's boss is Ms. Rivers."),
    ("theme", "The user prefers the dark theme.", "The user prefers the light theme."),
    ("Wohnort", "Der Nutzer wohnt in Köln.", "Der Nutzer wohnt jetzt in Graz."),
    ("Beruf", "Die Nutzerin arbeitet bei Bosch.", "Die Nutzerin arbeitet bei Zeiss."),
    ("téléphone", "Le numéro de l'utilisateur est 06 12 34 56 78.", "Le numéro de l'utilisateur est 07 98 76 54 32."),
    ("estado civil", "La usuaria está soltera.", "La usuaria está casada."),
    ("office day", "The user goes to the office on Mondays.", "The user goes to the office on Wednesdays."),
]
