export const label: string = "L";
