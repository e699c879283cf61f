"""What is planted into long conversations: facts, instructions and identifiers, and what is asked about them later.

The questions were written before anything was tuned, and are not changed to suit the code.
"""

from __future__ import annotations

from typing import NamedTuple


class Needle(NamedTuple):
    """Words that someone said once, what is asked about them, and what an answer must have."""

    said: str
    question: str
    answer: str


FACTS = (
    Needle("By the way, my sister Ilse moved to Porto last spring.", "Where does my sister Ilse live now?", "Porto"),
    Needle("Our cat is called Biscuit and she is fourteen.", "What is the name of our cat?", "Biscuit"),
    Needle("I am allergic to walnuts, so no walnut cake for me.", "What am I allergic to?", "walnuts"),
    Needle("The wedding is on the second Saturday of June.", "When is the wedding?", "second Saturday of June"),
    Needle(
        "My landlord, Mr Okonkwo, wants the rent by the third.",
        "What is the name of my landlord?",
        "Okonkwo",
    ),
    Needle("We bought the blue house next to the mill.", "Which house did we buy?", "blue house"),
    Needle("Grandfather worked as a clockmaker in Dresden.", "What did grandfather work as?", "clockmaker"),
    Needle("The spare key is under the third flowerpot.", "Where is the spare key?", "third flowerpot"),
    Needle("Theo plays the bassoon in the town orchestra.", "Which instrument does Theo play?", "bassoon"),
    Needle(
        "The marathon in Ljubljana was my best race so far.",
        "In which city was my best race?",
        "Ljubljana",
    ),
    Needle("Our supplier for flour is the mill at Hartwell.", "Who is our supplier for flour?", "Hartwell"),
    Needle("The doctor said to avoid grapefruit with the pills.", "What should I avoid with the pills?", "grapefruit"),
    Needle(
        "Maria decided that the launch moves to the autumn.",
        "When is the launch, as Maria decided?",
        "autumn",
    ),
    Needle("The old printer jams whenever we use thick paper.", "When does the old printer jam?", "thick paper"),
)

INSTRUCTIONS = (
    Needle("From now on always answer in British English.", "Which English should you answer in?", "British English"),
    Needle("Never push to the main branch without asking me.", "What must you never do without asking?", "main branch"),
    Needle("Please call me Captain in every reply.", "What should you call me?", "Captain"),
    Needle("Don't use semicolons in anything you write for me.", "Which punctuation must you not use?", "semicolons"),
    Needle("Use tabs, not spaces, in all the Go files.", "Tabs or spaces in the Go files?", "tabs"),
    Needle(
        "Make sure every commit message starts with a verb.", "What must a commit message start with?", "with a verb"
    ),
    Needle("I prefer short answers, three sentences at most.", "How long should answers be?", "three sentences"),
    Needle("Remember to give all distances in kilometres.", "In which unit do I want distances?", "kilometres"),
    Needle("You must not read anything in the private folder.", "Which folder must you not read?", "private folder"),
    Needle(
        "When you are unsure, ask me instead of guessing.", "What should you do when unsure?", "instead of guessing"
    ),
    Needle("Only run the slow tests on Fridays.", "On which day should the slow tests run?", "Fridays"),
    Needle("Write dates as day, month, year from here on.", "How should you write dates?", "day, month, year"),
)

IDENTIFIERS = (
    Needle("The order number for the desk is ORD-58213.", "What is the order number of the desk?", "ORD-58213"),
    Needle(
        "Our staging server listens on 10.44.7.19:8443.", "Where does the staging server listen?", "10.44.7.19:8443"
    ),
    Needle("The invoice goes to billing@hartwell.example.", "To which address goes the invoice?", "billing@hartwell"),
    Needle("The broken build was commit 9f3c2ab71d.", "Which commit was the broken build?", "9f3c2ab71d"),
    Needle("My passport number is X4471902K.", "What is my passport number?", "X4471902K"),
    Needle("The bug is tracked as LEDGER-1207.", "Under which id is the bug tracked?", "LEDGER-1207"),
    Needle("The new parser lives in src/ledger/parse/tokens.rs.", "Where does the new parser live?", "parse/tokens.rs"),
    Needle(
        "Secrets are read from /etc/ledger/secrets.env at start.",
        "From which file are the secrets read?",
        "/etc/ledger/secrets.env",
    ),
    Needle("The flag is called enable_shadow_writes.", "What is the flag called?", "enable_shadow_writes"),
    Needle("The flight to Lisbon is TP1357.", "What is the number of the flight to Lisbon?", "TP1357"),
    Needle(
        "The dashboard is at https://grafana.example/d/x81kq.",
        "Where is the dashboard?",
        "grafana.example/d/x81kq",
    ),
    Needle("The door code of the studio is 7305#.", "What is the door code of the studio?", "7305#"),
    Needle(
        "The database is ledger_prod_eu and has two replicas.",
        "What is the production database called?",
        "ledger_prod_eu",
    ),
    Needle("We pinned the image to version 4.18.2-rc3.", "To which version did we pin the image?", "4.18.2-rc3"),
)

NEEDLES = FACTS + INSTRUCTIONS + IDENTIFIERS
